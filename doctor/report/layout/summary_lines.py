"""The last lines of a report: notes, where to start, where the hosts came from, and the verdict."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence

import msgspec

from doctor.engine.exit_code import Verdict, verdict
from doctor.engine.language import localized, phrase
from doctor.engine.result import CONTAINER, NO_HOST, THIS_HOST_ALONE, Report
from doctor.report.layout.fold import CheckFailure, FoldedReport
from doctor.report.layout.formatting import bracketed, clean, count_noun, duration, format_time, translated
from doctor.report.layout.host_names import Fleet
from doctor.report.layout.tally import Counts, coverage, left_out

MAX_NAMED_CHECKS = 5
"""Most checks named in the fix command; with more it names none and applies to all findings."""
MAX_LEFT_OUT = 2
"""Most groups of hosts that the verdict names because checks do not apply there."""
_STATUS_WORDS = {
    Verdict.HEALTHY: "ok",
    Verdict.FAILED: "FAIL",
    Verdict.WARNINGS: "warn",
    Verdict.UNKNOWN: "unknown",
    Verdict.NOTHING: "unknown",
}


class SummaryLines(msgspec.Struct, frozen=True):
    """How a report ends."""

    notes: tuple[str, ...]
    source: str
    first_step: str
    """What to fix first; empty when there is no choice."""
    fix_command: str
    """The command that plans the automatic fixes; empty if there are none."""
    fix_offer: str
    """The words before that command: they say so where it does not mend what is to be fixed first."""
    unfilled: tuple[str, ...]
    """The values in the commands that only the reader knows, as they are marked."""
    status_word: str
    """The status whose sign and colour the verdict has."""
    verdict: str

    def unfilled_in(self, displayed: str) -> list[str]:
        """The marks that stand in what is displayed, which may be less than all commands."""
        return [mark for mark in self.unfilled if mark in displayed]


def summary_lines(
    report: Report,
    folded: FoldedReport,
    code: int | None = None,
    fixable: Collection[str] = (),
    unfilled: Iterable[str] = (),
) -> SummaryLines:
    """The end of the report; ``fixable`` are the checks that have a playbook, ``unfilled`` marks in commands."""
    word = verdict(report, code)
    when = [format_time(report.started)] if report.started else []
    origin = translated(report.source) or localized("hosts of unknown origin")
    origin = phrase("as after a reboot of {hosts}", hosts=origin) if report.after_reboot else origin
    source = localized(", ").join([origin, *when, duration(report.seconds)])
    notes = tuple(translated(note, 1000) for note in report.notes)
    prefix = localized("as after a reboot; ") if report.after_reboot else ""
    return SummaryLines(
        notes,
        source,
        _start(folded),
        fix_command(report, folded, fixable),
        fix_offer(folded, fixable),
        tuple(dict.fromkeys(unfilled)),
        _STATUS_WORDS[word],
        f"{localized(word.name)}{localized(': ')}{prefix}{_verdict_text(word, folded, report)}",
    )


def _start(folded: FoldedReport) -> str:
    first = folded.first_failure
    if first is None or len(folded.failures) < 2:
        return ""
    where = folded.fleet.where(first.hosts, first.outcome.evaluated_hosts, first.outcome.skipped)
    name = first.outcome.check
    return phrase("Start with {name}", name=phrase("{name} on {where}", name=name, where=where) if where else name)


def fix_offer(folded: FoldedReport, fixable: Collection[str]) -> str:
    """The words before `fix_command`: they say so where it does not mend what is to be fixed first."""
    first = folded.first_failure
    if first is None or _is_fixable(first, fixable):
        return localized("Or let doctor do it (this prints the plan; --apply runs it):")
    name = clean(first.outcome.check, 100)
    return phrase("doctor can repair other findings, not {name} (this prints the plan; --apply runs it):", name=name)


def fix_command(report: Report, folded: FoldedReport, fixable: Collection[str]) -> str:
    """The command that plans fixes for the findings of ``fixable`` checks, or the empty string.

    What is wrong in containers alone is not fixed by a command inside them.
    """
    failures = [
        failure
        for failure in folded.failures
        if _is_fixable(failure, fixable) and not all(group.finding.values.get(CONTAINER) for group in failure.groups)
    ]
    checks = dict.fromkeys(name for failure in failures for name in _checks(failure) if name in fixable)
    names = [shlex.quote(clean(name, 100)) for name in checks]
    if not names:
        return ""
    command_words = ["doctor", "fix", *(names if len(names) <= MAX_NAMED_CHECKS else [])]
    hosts = folded.fleet.ordered(
        host for failure in failures for host in failure.hosts if host in folded.fleet.positions
    )
    if hosts and not report.source.startswith(THIS_HOST_ALONE):
        command_words += ["-w", shlex.quote(clean(folded.fleet.nodeset(hosts), 2000))]
        command_words += folded.fleet.connection
    return " ".join(command_words)


def _checks(failure: CheckFailure) -> tuple[str, ...]:
    return (failure.outcome.check, *(other.check for other in failure.following))


def _is_fixable(failure: CheckFailure, fixable: Collection[str]) -> bool:
    """Whether the cause itself is: a command for what follows from it would adapt the host to the fault."""
    return failure.outcome.check in fixable


def _verdict_text(word: Verdict, folded: FoldedReport, report: Report) -> str:
    counts = folded.counts
    if word is Verdict.NOTHING and report.lacks_hosts:
        return localized(NO_HOST)
    if word is Verdict.NOTHING:
        if not counts.checks:
            return localized("there was no check to run")
        return phrase("none of {checks} applies", checks=count_noun(counts.skipped, "check"))
    covered = coverage(report, counts)
    parts = [_findings_text(folded)] if counts.findings else []
    waived = len({group.check for group in folded.waived})
    if not parts and word is Verdict.HEALTHY and (counts.passed or not waived):
        parts = [_passed(counts)]
    if word is Verdict.UNKNOWN and report.hosts_unknown:
        reason = translated(report.hosts_unknown)
        parts.append(phrase("{reason}, so this says nothing about the others", reason=reason))
    parts += [phrase("{checks} waived", checks=count_noun(waived, "check"))] if waived else []
    unknown = {name for gap in folded.unknown for name in gap.checks}
    if word is Verdict.HEALTHY and unknown:
        text = _as_far_as_allowed(len(unknown), covered.text)
        return localized("; ").join([text, *(_left_out(report, folded) if covered.text else ())])
    parts += [_unknown(report, folded, len(unknown))] if unknown else []
    if word is Verdict.UNKNOWN and counts.hidden:
        checks = count_noun(counts.hidden, "check")
        parts.append(phrase("{checks} unknown as a consequence of findings", checks=checks))
    if word is Verdict.UNKNOWN and report.smoke is not None and report.smoke.ended != "complete":
        watched = report.smoke.watched
        parts.append(localized("the watched job did not finish" if watched else "the smoke run did not finish"))
    crashed = sum(len(area.crashed) for area in folded.areas)
    parts += [phrase("{checks} crashed", checks=count_noun(crashed, "check"))] if crashed else []
    if parts == [_passed(counts)] and covered.text:
        where = phrase(" on {count} hosts", count=counts.hosts) if counts.hosts > 1 else ""
        text = phrase("{share}, and passed", share=covered.share) + where + covered.reason
        return localized("; ").join([text, *_left_out(report, folded)])
    counted = [covered.text] if covered.text and not (counts.findings and covered.is_settled) else []
    named = _left_out(report, folded) if counted or parts == [_passed(counts)] else ()
    return localized("; ").join([*parts, *counted, *named])


def _as_far_as_allowed(unknown: int, covered: str) -> str:
    """A healthy run of a user who may not look everywhere. ``unknown``: how many checks need root."""
    checks = count_noun(unknown, "check")
    if unknown == 1:
        text = phrase("as far as this user may look; {checks} needs --sudo", checks=checks)
    else:
        text = phrase("as far as this user may look; {checks} need --sudo", checks=checks)
    return localized("; ").join([text, *([covered] if covered else [])])


def _unknown(report: Report, folded: FoldedReport, count: int) -> str:
    """How many checks are unknown, and on which hosts, where those are not all."""
    checks, hosts = count_noun(count, "check"), {host for gap in folded.unknown for host in gap.hosts}
    if not all(gap.hosts for gap in folded.unknown) or hosts.issuperset(report.hosts):
        return phrase("{checks} unknown", checks=checks)
    where = clean(folded.fleet.fold(folded.fleet.ordered(hosts)), 200)
    return phrase("{checks} unknown on {where}", checks=checks, where=where)


def _left_out(report: Report, folded: FoldedReport) -> Iterator[str]:
    """The hosts that were not looked at as the others were."""
    for count, hosts in left_out(report)[:MAX_LEFT_OUT]:
        where = clean(folded.fleet.fold(hosts), 200)
        yield phrase("{count} checks of the other hosts do not apply to {hosts}", count=count, hosts=where)


def _passed(counts: Counts) -> str:
    hosts = count_noun(counts.hosts, "host")
    where = phrase("on {hosts}", hosts=hosts) if counts.hosts else localized("of the job itself, no host checked")
    return phrase("{checks} passed {where}", checks=count_noun(counts.passed, "check"), where=where)


def _findings_text(folded: FoldedReport) -> str:
    """The checks that found something, by severity; those that follow from another one apart."""
    following = sum(len(failure.following) for failure in folded.failures)
    counted: dict[str, list[str]] = {}
    """The numbers of errors and of warnings, by where they are."""
    for noun, is_error in (("error", True), ("warning", False)):
        failures = [failure for failure in folded.failures if failure.is_error is is_error]
        if failures:
            counted.setdefault(_on(folded.fleet, failures), []).append(_number(failures, noun))
    more = bracketed(count_noun(following, "consequence"))
    kinds = [localized(", ").join(numbers) + where for where, numbers in counted.items()]
    return localized(", ").join(kinds) + (more if following else "")


def _number(failures: Sequence[CheckFailure], noun: str) -> str:
    """How many lines of a report have this severity, and how many checks where one has several."""
    number = count_noun(sum(len(failure.groups) for failure in failures), noun)
    if all(len(failure.groups) == 1 for failure in failures):
        return number
    return phrase("{count} of {checks}", count=number, checks=count_noun(len(failures), "check"))


def _on(fleet: Fleet, failures: Iterable[CheckFailure]) -> str:
    """On which hosts of the run: the name of one, or how many; empty for what is on none."""
    named = {host for failure in failures for host in failure.hosts}
    hosts = [host for host in fleet.hosts if host in named]
    if len(hosts) in (0, 1, len(fleet.hosts)):
        where = fleet.where(hosts) if len(hosts) > 1 else fleet.fold(hosts)
        return phrase(" on {hosts}", hosts=where) if hosts else ""
    return phrase(" on {count} of {hosts}", count=len(hosts), hosts=count_noun(len(fleet.hosts), "host"))

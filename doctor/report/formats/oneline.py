"""The whole run on one line, for a job's log, a termination message, a grep.

    doctor preflight: FAIL nodes=62/64 bad=node[007,023] why=link-down:node[007,023] exit=10 t=13.1s

The status comes first, the keys have a fixed order, and empty keys are omitted, except ``nodes``, ``exit`` and
``t``. No value contains white space, unsafe characters from hosts are escaped as %XX, and the line has at most
`MAX_LINE_CHARS` characters, however many hosts there are.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from doctor.engine.exit_code import Exit, Verdict, verdict
from doctor.engine.result import BUDGET_ENDED, Outcome, Reason, Report, Severity, Status
from doctor.engine.sanitize import number_ranges
from doctor.engine.smoke_summary import SmokeSummary
from doctor.report.formats.registry import RenderContext
from doctor.report.layout.fold import fold, sort_by_area
from doctor.report.layout.host_health import classify_hosts, unknown_hosts
from doctor.report.layout.host_names import Fleet
from doctor.report.layout.next_step import advice
from doctor.report.layout.tally import RootCauses

SAFE_CHARS = frozenset(string.ascii_letters + string.digits + "._-+=:/@~^*(){}?!#,[]")
NAME_CHARS = SAFE_CHARS - frozenset(",[]:=")
FOLD_SAMPLE_HOSTS = 64
"""Hosts that are folded to see whether they fold well."""


def fold_within(hosts: Sequence[str], fleet: Fleet, max_chars: int) -> str:
    """Hosts, folded: as many as there is room for, and the number of the others."""
    if not hosts:
        return ""
    names = [percent_escape(host, NAME_CHARS, 60) for host in fleet.ordered(hosts)]
    shown_count = len(names)
    if shown_count > FOLD_SAMPLE_HOSTS and len(fleet.fold(names[:FOLD_SAMPLE_HOSTS])) > 2 * max_chars + 100:
        shown_count = FOLD_SAMPLE_HOSTS  # names without a pattern: all of them would take seconds, and not become fewer
    folded = ""
    while shown_count:
        folded = fleet.fold(names[:shown_count])
        if len(folded) <= max(max_chars, 1):
            break
        shown_count = min(shown_count // 2, FOLD_SAMPLE_HOSTS)
    remaining = len(names) - shown_count
    return ",".join([*([folded] if shown_count else []), *([f"+{remaining}"] if remaining else [])])


def join_within(names: Sequence[str], max_chars: int) -> str:
    """Words with commas between: as many as there is room for, and the number of the others."""
    escaped_names = [percent_escape(name, NAME_CHARS, 60) for name in names]
    while escaped_names and len(",".join(escaped_names)) > max(max_chars, 3):
        escaped_names.pop()
    remaining = len(names) - len(escaped_names)
    return ",".join([*escaped_names, *([f"+{remaining}"] if remaining else [])])


@lru_cache(4096)
def percent_escape(text: str, safe: frozenset[str] = SAFE_CHARS, limit: int = 60) -> str:
    """``text`` as one word of plain letters: all else as %XX of its UTF-8."""
    if re.fullmatch(r"[A-Za-z0-9._-]*", text) and len(text) <= limit:
        return text
    result = "".join(
        letter if letter in safe else "".join(f"%{byte:02X}" for byte in letter.encode("utf-8", "backslashreplace"))
        for letter in text[: limit + 1]
    )
    return result if len(result) <= limit else result[: limit - 1] + "~"


__all__ = ["MAX_LINE_CHARS", "advice", "causes", "line", "verdict_word"]

MAX_LINE_CHARS = 1000
MAX_REASON_CHARS = 48
"""Characters of a reason."""
REACHABILITY_CHECK = "host-unreachable"
NO_ANSWER = "no-answer"
"""The reason of every check on a host that did not answer in time."""
MAX_RANK_RANGES = 8
SMOKE_AREAS = frozenset({"smoke", "connectivity"})
"""What `doctor smoke` evaluates, and no other command these alone."""
MAX_CAUSES = 5
"""Causes that are named; the rest are counted."""
VERDICT_WORDS = {
    Verdict.HEALTHY: "OK",
    Verdict.FAILED: "FAIL",
    Verdict.WARNINGS: "WARN",
    Verdict.UNKNOWN: "UNKNOWN",
    Verdict.NOTHING: "NOTHING",
}


class _ListLimits(NamedTuple):
    """Characters for lists of hosts."""

    bad: int
    cause: int


_LIST_LIMITS = (_ListLimits(240, 60), _ListLimits(100, 30), _ListLimits(40, 12), _ListLimits(0, 0))


def line(
    report: Report,
    code: int,
    *,
    command: str = "check",
    where: str = "",
    tier: str = "",
    skipped: Sequence[str] = (),
    left_out: Iterable[str] = (),
    need: int = 0,
    path: str = "",
    seconds: float | None = None,
    word: str = "",
    cause: str = "",
    scope: str = "",
    sound: Collection[str] = (),
) -> str:
    """The line, without a line feed; ``code`` is the exit code that it comes with, ``word`` stands for the verdict's.

    ``nodes`` counts healthy hosts of all; of the job itself, without hosts, ``checks`` counts those that judged;
    ``warn`` and ``waived`` count checks, ``unknown`` those that could not look at all they should for a reason of their
    own, with the hosts. ``why`` names what the word rests on: errors by check, else what is unknown by its reason, else
    warnings; or the ``cause`` why the run came to no verdict. ``scope``: ``this-host`` where no other was.
    ``left_out``: the area of each check that the tier left out. ``sound``: hosts that were judged healthy without the
    others; findings between them and those do not change that.
    """
    words = (("scope", scope, 20), ("where", where, 80), ("tier", tier, 20))
    ends = [("need", str(need) if need else "")]
    ends += [(key, percent_escape(word, limit=most)) for key, word, most in words]
    time = report.seconds if seconds is None else seconds
    ends += [("exit", str(int(code))), ("t", f"{time:.1f}s" if 0 <= time < 1e9 else "?s"), ("report", _path(path))]
    absent = _counted(left_out)
    start = f"doctor {command}: {word or verdict_word(report, code, need)}"
    report_keys = _ReportKeys(report, code, sound, cause)
    for limits in _LIST_LIMITS:
        lists = [("skip", join_within(skipped, limits.bad)), ("left-out", absent if limits.bad else "")]
        pairs = [*report_keys.keys(limits), *lists, *ends]
        text = " ".join([start, *(f"{key}={value}" for key, value in pairs if value)])
        if len(text) <= MAX_LINE_CHARS:
            break
    return text


def _counted(areas: Iterable[str]) -> str:
    """Such as ``devices:4,network:2``."""
    counts = sorted(Counter(areas).items())
    return ",".join(f"{percent_escape(area, NAME_CHARS, 60)}:{count}" for area, count in counts)


def verdict_word(report: Report, code: int, need: int = 0) -> str:
    """The verdict in capitals. A run that was cut short is never OK; with ``--need``, enough healthy hosts are."""
    run_verdict = verdict(report, code)
    if need and code == Exit.HEALTHY:
        return "OK"
    cut = code == Exit.BUG or code > 128
    return "UNKNOWN" if cut and run_verdict in (Verdict.HEALTHY, Verdict.WARNINGS) else VERDICT_WORDS[run_verdict]


def causes(report: Report, code: int | None = None) -> list[tuple[str, tuple[str, ...]]]:
    """The causes of the verdict with the hosts: errors by check, else what is unknown by reason, else warnings.

    Those that explain most come first, then in the order in which a job meets them. What follows from another finding
    is not named.
    """
    failures = fold(report).failures
    selected = [failure.errors_alone() for failure in failures if failure.is_error]
    if not selected and report.hosts_unknown:
        return [("hosts-unknown", ()), *_unknown_causes(report)]
    if not selected and verdict(report, code) is not Verdict.UNKNOWN:
        selected = list(failures)
    return [(failure.outcome.check, failure.hosts) for failure in selected] or _unknown_causes(report)


def _unknown_causes(report: Report) -> list[tuple[str, tuple[str, ...]]]:
    """Why something is unknown, as one word, with the hosts: the reason that leaves most checks unknown first."""
    fleet, root_causes = Fleet(report.hosts), RootCauses(report.outcomes)
    hosts: dict[str, set[str]] = {}
    checks: Counter[str] = Counter()
    silent = {host for host, names in unknown_hosts(report).items() if REACHABILITY_CHECK in names}
    for outcome in sort_by_area(report.outcomes):
        reasons = {host: _reason_word(reason) for host, reason in root_causes.unexplained(outcome).items()}
        reasons |= dict.fromkeys(outcome.crashed, f"{outcome.check}-crashed")
        reasons |= dict.fromkeys(silent.intersection(reasons), NO_ANSWER)
        for host, word in reasons.items():
            hosts.setdefault(word, set()).add(host)
        checks.update(reasons.values())
    return [(word, fleet.ordered(hosts[word])) for word, _ in checks.most_common()]


def _reason_word(reason: Reason) -> str:
    """A reason as one word: ``hccn_tool -ip -g: no answer in 5 s`` is ``hccn_tool-ip-g-no-answer-in-5-s``."""
    if reason == BUDGET_ENDED:
        return "budget-ended"
    beginning = re.match(rf"(?s).{{1,{MAX_REASON_CHARS}}}(?![a-z0-9_.])", reason.text.lower())
    parts = re.findall(r"[a-z0-9_.]+", beginning[0] if beginning else reason.text[:MAX_REASON_CHARS].lower())
    return "-".join(parts).strip(".-") or "no-reason"


class _ReportKeys:
    """The part of the line that a report fills."""

    def __init__(self, report: Report, code: int, sound: Collection[str], cause: str) -> None:
        self.report, self.fleet, self.health = report, Fleet(report.hosts), classify_hosts(report, sound)
        self.causes, self.cause = causes(report, code), percent_escape(cause)
        self.unknown = unknown_hosts(report)

    def keys(self, limits: _ListLimits) -> Iterator[tuple[str, str]]:
        report, host_health = self.report, self.health
        others = _unlisted_hosts(report)
        judged = [outcome for outcome in report.outcomes if outcome.status in (Status.PASSED, Status.FAILED)]
        of_job_alone = judged and not report.hosts and not others
        healthy = f"{len(host_health.healthy)}/{len(report.hosts) + len(others)}"
        yield ("checks", f"{len(judged)}/{len(report.outcomes)}") if of_job_alone else ("nodes", healthy)
        yield "bad", fold_within((*host_health.bad, *others), self.fleet, limits.bad)
        yield "why", self.cause or ",".join(self.cause_texts(limits))
        unknown_checks = {name for names in self.unknown.values() for name in names}
        hosts = fold_within([host for host in self.unknown if host], self.fleet, limits.cause)
        yield "unknown", f"{len(unknown_checks)}{':' if hosts else ''}{hosts}" if unknown_checks else ""
        yield "smoke", _smoke_text(report.smoke) if report.smoke else ""
        yield "warn", _number(_is_warning(outcome) for outcome in report.outcomes)
        yield "waived", _number(bool(outcome.waived) for outcome in report.outcomes)

    def cause_texts(self, limits: _ListLimits) -> Iterator[str]:
        for name, hosts in self.causes[:MAX_CAUSES]:
            host_list = fold_within(hosts, self.fleet, limits.cause)
            yield f"{percent_escape(name, NAME_CHARS, 60)}{':' if host_list else ''}{host_list}"
        if len(self.causes) > MAX_CAUSES:
            yield f"+{len(self.causes) - MAX_CAUSES}"


def _unlisted_hosts(report: Report) -> list[str]:
    """Hosts that an error blames although they are not of the run: those of ranks that never came."""
    blamed = {
        host
        for outcome in report.outcomes
        for finding in outcome.findings
        if outcome.severity_of(finding) is Severity.ERROR
        for host in finding.hosts
    }
    return sorted(blamed - set(report.hosts))


def _smoke_text(smoke: SmokeSummary) -> str:
    """How the smoke run ended where it is not complete, with the ranks: ``trouble:never-joined:2-63``."""
    ranges = number_ranges(smoke.failures[0].culprit_ranks).split(",") if smoke.failures else []
    ranks = ",".join(ranges[:MAX_RANK_RANGES])
    parts = [smoke.ended, *([smoke.failures[0].kind] if smoke.failures else []), *([ranks] if ranks else [])]
    return ":".join(parts) if smoke.ended != "complete" else ""


def _is_warning(outcome: Outcome) -> bool:
    return outcome.status is Status.FAILED and outcome.found_severity is Severity.WARNING


def _number(flags: Iterable[bool]) -> str:
    return str(sum(flags) or "")


def _path(path: str) -> str:
    escaped_path = percent_escape(path, limit=10_000)
    return escaped_path if len(escaped_path) <= 300 else ""


def render(report: Report, context: RenderContext) -> str:
    """The line of a report, for every command."""
    smoke_alone = report.smoke and {outcome.area for outcome in report.outcomes} <= SMOKE_AREAS
    command = context.command
    if report.smoke and smoke_alone and command == "check":
        command = "watch" if report.smoke.watched else "smoke"
    return line(report, context.code, command=command, seconds=context.seconds) + "\n"

"""The last lines of a report: notes, where to start, where the hosts came from, and the verdict."""

from __future__ import annotations

import shlex
from collections.abc import Collection

import msgspec

from doctor.engine.exit_code import Verdict, verdict
from doctor.engine.result import Report
from doctor.report.layout.fold import Folded
from doctor.report.layout.formatting import clean, count, duration, moment
from doctor.report.layout.tally import Counts

MOST_NAMES = 5
"""Checks that the command to mend them names; without names it is for all that was found."""
_WORDS = {
    Verdict.HEALTHY: "ok",
    Verdict.FAILED: "FAIL",
    Verdict.WARNINGS: "warn",
    Verdict.UNKNOWN: "unknown",
    Verdict.NOTHING: "unknown",
}


class Closing(msgspec.Struct, frozen=True):
    """How a report ends."""

    notes: tuple[str, ...]
    source: str
    start: str
    """What to mend first; empty when there is no choice."""
    mend: str
    """The command that plans what software can mend; empty where it can mend nothing."""
    word: str
    """The status whose look the verdict has."""
    verdict: str


def closing(report: Report, folded: Folded, code: int | None = None, mendable: Collection[str] = ()) -> Closing:
    """The end of the report; ``mendable`` are the checks that a playbook mends."""
    word = verdict(report, code)
    when = [moment(report.started)] if report.started else []
    source = ", ".join([clean(report.source) or "hosts of unknown origin", *when, duration(report.seconds)])
    notes = tuple(clean(note, 1000) for note in report.notes)
    return Closing(
        notes,
        source,
        _start(folded),
        mend(report, folded, mendable),
        _WORDS[word],
        f"{word.name}: {_said(word, folded, _is_cut(report))}",
    )


def _start(folded: Folded) -> str:
    first = folded.first
    if first is None or sum(len(area.failures) for area in folded.areas) < 2:
        return ""
    where = folded.fleet.where(first.hosts, first.outcome.looked)
    return f"Start with {first.outcome.check}{' on ' + where if where else ''}"


def mend(report: Report, folded: Folded, mendable: Collection[str]) -> str:
    """The command that plans the mending of what was found, of ``mendable`` checks; or the empty string."""
    found = [one for area in folded.areas for one in area.failures if one.outcome.check in mendable]
    names = [shlex.quote(clean(one.outcome.check, 100)) for one in found]
    if not names:
        return ""
    words = ["doctor", "fix", *(names if len(names) <= MOST_NAMES else [])]
    hosts = folded.fleet.ordered(host for one in found for host in one.hosts if host in folded.fleet.place)
    if hosts and not report.source.startswith("this host alone"):
        words += ["-w", shlex.quote(clean(folded.fleet.fold(hosts), 2000))]
    return " ".join(words)


def _is_cut(report: Report) -> bool:
    return report.smoke is not None and report.smoke.ended != "complete"


def _said(word: Verdict, folded: Folded, cut: bool) -> str:
    counts = folded.counts
    if word is Verdict.NOTHING:
        return f"none of {count(counts.skipped, 'check')} applies" if counts.checks else "there was no check to run"
    parts = [_found(counts)] if counts.findings else []
    waived = len({one.check for one in folded.waived})
    if not parts and word is Verdict.HEALTHY and (counts.passed or not waived):
        parts = [_passed(counts)]
    parts += [f"{count(waived, 'check')} waived"] if waived else []
    unknown = {name for gap in folded.unknown for name in gap.checks}
    parts += [f"{count(len(unknown), 'check')} unknown"] if unknown else []
    if word is Verdict.UNKNOWN and counts.hidden:
        parts.append(f"{count(counts.hidden, 'check')} unknown because of what was found")
    parts += ["the smoke run did not come to its end"] if word is Verdict.UNKNOWN and cut else []
    crashed = sum(len(area.crashed) for area in folded.areas)
    parts += [f"{count(crashed, 'check')} crashed"] if crashed else []
    parts += [f"{counts.skipped} {'does' if counts.skipped == 1 else 'do'} not apply"] if counts.skipped else []
    return "; ".join(parts)


def _passed(counts: Counts) -> str:
    where = f"on {count(counts.hosts, 'host')}" if counts.hosts else "of the job itself, no host looked at"
    return f"{count(counts.passed, 'check')} {where}"


def _found(counts: Counts) -> str:
    kinds = [count(counts.errors, "error")] if counts.errors else []
    kinds += [count(counts.warnings, "warning")] if counts.warnings else []
    where = f" on {counts.blamed} of {count(counts.hosts, 'host')}" if counts.blamed else ""
    return ", ".join(kinds) + where

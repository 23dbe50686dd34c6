"""Waivers: findings that a site puts up with, for a reason and until a day: shown and counted, and no failure.

A finding is waived only when all hosts that it blames are: it is one statement, of all of them. What blames no host is
waived for every host or not at all. What is unknown cannot be waived: not known is never healthy.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import msgspec

from doctor.config.file import BadSettings, Settings, find
from doctor.config.skips import Skips, leave_out, skipped
from doctor.config.waiver_file import Waiver, Waivers, parse, spelled
from doctor.engine.result import Finding, Outcome, Report, Waived
from doctor.hosts.nodeset import shown

__all__ = ["BadSettings", "Skips", "Waiver", "Waivers", "apply", "parse", "refuse", "settle", "skipped", "today"]


def settle(
    report: Report, config: str | Path | None, environ: Mapping[str, str], known: Collection[str], today: date
) -> Report:
    """``report`` less what DOCTOR_SKIP leaves out, with what ``doctor.toml`` waives set apart.

    Raises: BadSettings.
    """
    skips, settings, waivers = _read(config, environ, known)
    report = msgspec.structs.replace(report, notes=(*report.notes, *settings.notes))
    return apply(leave_out(report, skips), waivers, today)


def refuse(config: str | Path | None, environ: Mapping[str, str], known: Collection[str]) -> None:
    """Raises: BadSettings for what `settle` could not follow, before anything is done."""
    _read(config, environ, known)


def _read(
    config: str | Path | None, environ: Mapping[str, str], known: Collection[str]
) -> tuple[Skips, Settings, Waivers]:
    settings = find(config, environ)
    return skipped(environ, known), settings, parse(settings.text, settings.path, known)


def today() -> date:
    """The last day that has not ended everywhere: no waiver ends before its day does, and all hosts agree."""
    return datetime.now(timezone(timedelta(hours=-12))).date()


def apply(report: Report, waivers: Waivers, today: date) -> Report:
    """``report`` with each finding that is waived today set apart, and notes on what is waived no more."""
    if not waivers.each:
        return report
    judge = _Judge(waivers.each, today)
    outcomes = tuple(judge.outcome(one) for one in report.outcomes)
    notes = (*report.notes, *judge.notes(report, shown(waivers.path, 200)))
    return msgspec.structs.replace(report, outcomes=outcomes, notes=notes)


class _Judge:
    """Which findings are waived, and which waivers serve for something."""

    def __init__(self, waivers: Sequence[Waiver], today: date) -> None:
        self.live = [one for one in waivers if today <= one.until]
        self.expired = [one for one in waivers if today > one.until]
        self.used: set[Waiver] = set()
        self.missed: set[Waiver] = set()
        """Those that would have waived a finding, had they not expired."""

    def outcome(self, outcome: Outcome) -> Outcome:
        left: list[Finding] = []
        waived = list(outcome.waived)
        for finding in outcome.findings:
            found = _covering(finding, [one for one in self.live if one.check == outcome.check])
            if found:
                self.used.update(found)
                reasons = "; ".join(dict.fromkeys(one.reason for one in found))
                waived.append(Waived(finding, reasons, min(one.until for one in found).isoformat()))
            else:
                left.append(finding)
                self.missed.update(_covering(finding, [one for one in self.expired if one.check == outcome.check]))
        return msgspec.structs.replace(outcome, findings=tuple(left), waived=tuple(waived)) if waived else outcome

    def notes(self, report: Report, path: str) -> list[str]:
        total = len(self.live) + len(self.expired)
        notes = [f"settings: {path}: {total} waiver{'' if total == 1 else 's'}"]
        missed = [one for one in self.expired if one in self.missed]
        notes += [f"waiver of {one} expired on {one.until.isoformat()}: {one.reason}" for one in missed]
        idle = [str(one) for one in self.live if one not in self.used and _was_judged(one, report)]
        notes += [f"nothing to waive any more: {'; '.join(idle)}"] if idle else []
        return notes


def _covering(finding: Finding, waivers: Sequence[Waiver]) -> list[Waiver]:
    """The first that covers the finding alone, else those that do so together."""
    alone = next((one for one in waivers if one.covers(finding)), None)
    if alone:
        return [alone]
    blamed = spelled(finding.hosts)
    some = [one for one in waivers if one.hosts & blamed]
    return some if blamed and blamed <= frozenset().union(*(one.hosts for one in some)) else []


def _was_judged(waiver: Waiver, report: Report) -> bool:
    """The check looked at all there is to waive, so that the waiver can go."""
    return waiver.hosts <= spelled(report.hosts) and any(
        one.check == waiver.check and one.complete and not one.unknown and not one.crashed for one in report.outcomes
    )

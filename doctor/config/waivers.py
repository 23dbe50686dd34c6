"""Waivers: findings that a site accepts, for a reason and until a day: shown and counted, and no failure.

A finding is waived only when all hosts that it blames are: it is one statement, of all of them. What blames no host is
waived for every host or not at all. What is unknown cannot be waived: not known is never healthy.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone

import msgspec

from doctor.config.file import ConfigError, ConfigFile, parse_history
from doctor.config.skips import Skips, apply_skips, read_skips
from doctor.config.waiver_file import Waiver, Waivers, canonical_hosts, parse_waivers
from doctor.engine.result import Finding, Outcome, Report, Waived
from doctor.engine.sanitize import count_noun, printable_excerpt
from doctor.engine.texts import filled, joined

__all__ = [
    "ConfigError",
    "Skips",
    "Waiver",
    "Waivers",
    "apply_skips_and_waivers",
    "apply_waivers",
    "parse_waivers",
    "read_skips",
    "today",
    "validate_skips_and_waivers",
]


def apply_skips_and_waivers(
    report: Report, settings: ConfigFile, environ: Mapping[str, str], known_checks: Collection[str], today: date
) -> Report:
    """``report`` less what DOCTOR_SKIP leaves out, with what ``doctor.toml`` waives set apart.

    Raises: BadSettings.
    """
    skips, waivers = _load_policy(settings, environ, known_checks)
    report = msgspec.structs.replace(report, notes=(*report.notes, *settings.notes))
    return apply_waivers(apply_skips(report, skips), waivers, today)


def validate_skips_and_waivers(settings: ConfigFile, environ: Mapping[str, str], known_checks: Collection[str]) -> None:
    """Raises: BadSettings for what `apply_skips_and_waivers` could not follow, before anything is done."""
    _load_policy(settings, environ, known_checks)
    parse_history(settings)


def _load_policy(
    settings: ConfigFile, environ: Mapping[str, str], known_checks: Collection[str]
) -> tuple[Skips, Waivers]:
    return read_skips(environ, known_checks), parse_waivers(settings.text, settings.path, known_checks)


def today() -> date:
    """The last day that has not ended everywhere: no waiver ends before its day does, and all hosts agree."""
    return datetime.now(timezone(timedelta(hours=-12))).date()


def apply_waivers(report: Report, waivers: Waivers, today: date) -> Report:
    """``report`` with each finding that is waived today set apart, and notes on what is waived no more."""
    if not waivers.entries:
        return report
    matcher = _WaiverMatcher(waivers.entries, today)
    outcomes = tuple(matcher.apply_to(outcome) for outcome in report.outcomes)
    notes = (*report.notes, *matcher.notes(report, printable_excerpt(waivers.path, 200)))
    return msgspec.structs.replace(report, outcomes=outcomes, notes=notes)


class _WaiverMatcher:
    """Which findings are waived, and which waivers serve for something."""

    def __init__(self, waivers: Sequence[Waiver], today: date) -> None:
        self.active = [waiver for waiver in waivers if today <= waiver.until]
        self.expired = [waiver for waiver in waivers if today > waiver.until]
        self.used: set[Waiver] = set()
        self.expired_matches: set[Waiver] = set()
        """Those that would have waived a finding, had they not expired."""

    def apply_to(self, outcome: Outcome) -> Outcome:
        unwaived: list[Finding] = []
        waived = list(outcome.waived)
        for finding in outcome.findings:
            covering = _covering_waivers(finding, [waiver for waiver in self.active if waiver.check == outcome.check])
            if covering:
                self.used.update(covering)
                reasons = joined("; ", dict.fromkeys(waiver.reason for waiver in covering))
                waived.append(Waived(finding, reasons, min(waiver.until for waiver in covering).isoformat()))
            else:
                unwaived.append(finding)
                self.expired_matches.update(
                    _covering_waivers(finding, [waiver for waiver in self.expired if waiver.check == outcome.check])
                )
        return msgspec.structs.replace(outcome, findings=tuple(unwaived), waived=tuple(waived)) if waived else outcome

    def notes(self, report: Report, path: str) -> list[str]:
        total = len(self.active) + len(self.expired)
        notes = [filled("settings: {0}: {1}", path, count_noun(total, "waiver"))]
        missed = [waiver for waiver in self.expired if waiver in self.expired_matches]
        notes += [
            filled("waiver of {0} expired on {1}: {2}", waiver, waiver.until.isoformat(), waiver.reason)
            for waiver in missed
        ]
        idle = [str(waiver) for waiver in self.active if waiver not in self.used and _was_evaluated(waiver, report)]
        notes += [filled("waivers without a finding: {0}", joined("; ", idle))] if idle else []
        return notes


def _covering_waivers(finding: Finding, waivers: Sequence[Waiver]) -> list[Waiver]:
    """The first that covers the finding alone, else those that do so together."""
    alone = next((waiver for waiver in waivers if waiver.covers(finding)), None)
    if alone:
        return [alone]
    blamed = canonical_hosts(finding.hosts)
    some = [waiver for waiver in waivers if waiver.hosts & blamed]
    return some if blamed and blamed <= frozenset().union(*(waiver.hosts for waiver in some)) else []


def _was_evaluated(waiver: Waiver, report: Report) -> bool:
    """The check evaluated all hosts of the waiver, so the waiver is unused."""
    return waiver.hosts <= canonical_hosts(report.hosts) and any(
        outcome.check == waiver.check and outcome.complete and not outcome.unknown and not outcome.crashed
        for outcome in report.outcomes
    )

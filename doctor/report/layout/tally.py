"""Counts how the checks of a run ended, with consequences separated from what is unknown for its own reason. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from doctor.engine.result import Outcome, Reason, Report, Severity


class Counts(msgspec.Struct, frozen=True):
    """How many checks ended how; each check is counted once."""

    checks: int = 0
    passed: int = 0
    errors: int = 0
    warnings: int = 0
    crashed: int = 0
    unknown: int = 0
    hidden: int = 0
    """Unknown on some hosts only because of a root cause that another check found there."""
    skipped: int = 0
    waived: int = 0
    """Every finding is waived."""
    findings: int = 0
    hosts: int = 0
    blamed: int = 0
    """Hosts that at least one finding names."""


def tally(report: Report) -> Counts:
    """How many checks ended how."""
    causes = RootCauses(report.outcomes)
    return counted(
        report, {outcome.check: outcome_class(outcome, causes.unexplained(outcome)) for outcome in report.outcomes}
    )


def _blamed(outcome: Outcome) -> Iterator[str]:
    """The hosts that its findings explain; what stops a smoke run stops it on every host."""
    for finding in outcome.findings:
        yield from finding.hosts or ("",)
        if outcome.area == "smoke":
            yield ""


class RootCauses:
    """Which check's finding explains that another one could not run.

    What is waived explains nothing: behind it, what is unknown stays in plain sight.
    """

    def __init__(self, outcomes: Iterable[Outcome]) -> None:
        self.unknown = {outcome.check: outcome.unknown for outcome in outcomes}
        self.blamed = {outcome.check: set(_blamed(outcome)) for outcome in outcomes}
        self.consequences: dict[str, set[str]] = {}

    def unexplained(self, outcome: Outcome) -> dict[str, Reason]:
        """What is unknown and no finding explains; the rest is noted under its root cause."""
        remaining: dict[str, Reason] = {}
        for host, reason in outcome.unknown.items():
            root = self.root_cause(host, reason)
            if root:
                self.consequences.setdefault(root, set()).add(outcome.check)
            else:
                remaining[host] = reason
        return remaining

    def blocked(self, check: str) -> set[str]:
        """The checks that a finding of this one kept from evaluating hosts, as far as `unexplained` has met them."""
        return self.consequences.get(check, set())

    def root_cause(self, host: str, reason: Reason) -> str:
        visited: set[str] = set()
        name = reason.root_cause
        while name and name not in visited:
            blamed = self.blamed.get(name, set())
            if host in blamed or "" in blamed or (not host and blamed):
                return name
            visited.add(name)
            further = self.unknown.get(name, {}).get(host)
            name = further.root_cause if further else ""
        return ""


def outcome_class(outcome: Outcome, unexplained: Mapping[str, Reason]) -> str:
    """Which of `Counts` the check adds to; ``unexplained`` is what is unknown and no consequence."""
    if outcome.findings:
        return "errors" if outcome.found_severity is Severity.ERROR else "warnings"
    if outcome.crashed:
        return "crashed"
    if outcome.unknown:
        return "unknown" if unexplained else "hidden"
    if outcome.waived:
        return "waived"
    return "passed" if outcome.complete else "skipped"


def counted(report: Report, standings: Mapping[str, str]) -> Counts:
    """The sum of all standings."""
    blamed = {host for outcome in report.outcomes for finding in outcome.findings for host in finding.hosts}
    return Counts(
        checks=len(report.outcomes),
        findings=sum(len(outcome.findings) for outcome in report.outcomes),
        hosts=len(report.hosts),
        blamed=len(blamed & set(report.hosts)),
        **Counter(standings.values()),
    )

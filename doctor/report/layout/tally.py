"""Counts how the checks of a run ended, with consequences separated from what is unknown for its own reason;
how much of the catalogue applied, and what kept the rest from applying. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from doctor.engine.check_files import AREAS
from doctor.engine.language import localized, phrase
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
            if reason.root_cause and (root := self.root_cause(host, reason)):
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


_DEVICE_CHECKS = ("npu-missing", "gpu-driver-not-loaded")
"""They apply to every host that has a device of their kind, and to no other."""
_UNREACHABLE = "host-unreachable"
_NO_ANSWER = "no host answered"


class AreaCoverage(msgspec.Struct, frozen=True):
    """The checks of one area."""

    area: str
    applied: int
    checks: int
    unknown: int = 0


class Coverage(msgspec.Struct, frozen=True):
    """What a run covered."""

    applied: int
    """Checks that came to a result on at least one host, or for the job itself."""
    checks: int
    limits: tuple[str, ...]
    """What kept many of the others from applying, in words: one host, no accelerator found, no host answered."""
    areas: tuple[AreaCoverage, ...]
    unknown: int = 0
    """Checks that came to a result nowhere, because every host is unknown or the check crashed."""
    unsettled: int = 0
    """Checks that do not apply to the hosts that answered, and are unknown on others."""

    @property
    def is_settled(self) -> bool:
        """Whether each check came to a result or does not apply, which the report says above the verdict, with why."""
        return not (self.unknown or self.unsettled)

    @property
    def text(self) -> str:
        """``18 of 124 checks apply: one host, no accelerator found``, or empty where all apply."""
        return self.share + self.reason if self.applied < self.checks else ""

    @property
    def share(self) -> str:
        """``18 of 124 checks apply``; where some are unknown, which is said beside it, ``4 of 124 checks judged``."""
        if not self.is_settled:
            return phrase("{count} of {total} checks judged", count=self.applied, total=self.checks)
        numbers = {"count": self.applied, "total": self.checks}
        return phrase(
            "{count} of {total} checks applies" if self.applied == 1 else "{count} of {total} checks apply", **numbers
        )

    @property
    def reason(self) -> str:
        """``: one host``, or empty. Why checks do not apply does not tell why others are unknown."""
        limits = [limit for limit in self.limits if not self.unknown or limit == _NO_ANSWER]
        return localized(": ") + localized(", ").join(map(localized, limits)) if limits else ""


def coverage(report: Report, counts: Counts) -> Coverage:
    """What the run covered; ``counts`` are those of the report."""
    areas = [area for area in AREAS if any(outcome.area == area for outcome in report.outcomes)]
    return Coverage(
        sum(map(_applied, report.outcomes)),
        counts.checks,
        tuple(_limits(report)),
        tuple(_area_coverage(area, [outcome for outcome in report.outcomes if outcome.area == area]) for area in areas),
        sum(map(_is_unknown, report.outcomes)),
        sum(map(_is_unsettled, report.outcomes)),
    )


MIN_LEFT_OUT = 5
"""Checks of other hosts that a host must lack to be named, or half of all that came to a result: some depend on a
device that one host alone has."""


def left_out(report: Report) -> list[tuple[int, tuple[str, ...]]]:
    """Hosts on which many checks do not apply that came to a result on most others, with how many; most first."""
    lacking: Counter[str] = Counter()
    for outcome in report.outcomes:
        judged = {*outcome.evaluated_hosts, *outcome.unknown}
        if len(outcome.evaluated_hosts) * 2 > len(report.hosts) > len(judged):
            lacking.update(host for host in report.hosts if host not in judged)
    least = min(MIN_LEFT_OUT, sum(map(_applied, report.outcomes)) / 2)
    counts = sorted({count for count in lacking.values() if count >= least}, reverse=True)
    return [(count, tuple(host for host in report.hosts if lacking[host] == count)) for count in counts]


def _area_coverage(area: str, outcomes: list[Outcome]) -> AreaCoverage:
    return AreaCoverage(area, sum(map(_applied, outcomes)), len(outcomes), sum(map(_is_unknown, outcomes)))


def _applied(outcome: Outcome) -> bool:
    return bool(outcome.findings or outcome.waived or outcome.complete)


def _is_unknown(outcome: Outcome) -> bool:
    return bool(outcome.crashed or (outcome.unknown and not outcome.skipped)) and not _applied(outcome)


def _is_unsettled(outcome: Outcome) -> bool:
    return bool(outcome.unknown and outcome.skipped and not outcome.crashed) and not _applied(outcome)


def _limits(report: Report) -> Iterator[str]:
    by_name = {outcome.check: outcome for outcome in report.outcomes}
    unreachable = by_name.get(_UNREACHABLE)
    dead = {host for finding in unreachable.findings for host in finding.hosts} if unreachable else set()
    if report.hosts and dead.issuperset(report.hosts):
        yield _NO_ANSWER
        return
    if len(report.hosts) == 1:
        yield "one host"
    if report.smoke and report.smoke.world_size == 1:
        yield "one rank"
    devices = [by_name.get(name) for name in _DEVICE_CHECKS]
    if report.hosts and all(outcome and not _applied(outcome) and not outcome.unknown for outcome in devices):
        yield "no accelerator found"

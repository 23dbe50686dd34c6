"""Folds a report: equal findings over hosts, consequences under their root cause, equal reasons over checks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from doctor.engine.areas import AREAS
from doctor.engine.result import Finding, Outcome, Report, Severity
from doctor.report.layout.group_findings import FindingGroup, grouped
from doctor.report.layout.host_names import Fleet
from doctor.report.layout.tally import Counts, RootCauses, counted, outcome_class


class CheckFailure(msgspec.Struct, frozen=True):
    """A check that found something."""

    outcome: Outcome
    groups: tuple[FindingGroup, ...]
    hosts: tuple[str, ...]
    """All hosts of the findings."""
    consequences: tuple[str, ...]
    """The checks that could not evaluate these hosts because of this finding."""

    @property
    def is_error(self) -> bool:
        return self.outcome.found_severity is Severity.ERROR


class Gap(msgspec.Struct, frozen=True):
    """Checks that did not evaluate some hosts, all for one reason. No hosts: the fleet as a whole."""

    reason: str
    hosts: tuple[str, ...]
    checks: tuple[str, ...]


class WaivedGroup(msgspec.Struct, frozen=True):
    """Findings of one check that are waived for one reason until one day."""

    check: str
    reason: str
    until: str
    groups: tuple[FindingGroup, ...]
    hosts: tuple[str, ...]


class Area(msgspec.Struct, frozen=True):
    """One group of checks, less those that do not apply."""

    name: str
    failures: tuple[CheckFailure, ...]
    crashed: tuple[Outcome, ...]
    healthy: tuple[Outcome, ...]
    total: int


class FoldedReport(msgspec.Struct, frozen=True):
    """A report, ready to be put into words."""

    fleet: Fleet
    areas: tuple[Area, ...]
    unknown: tuple[Gap, ...]
    skipped: tuple[Gap, ...]
    waived: tuple[WaivedGroup, ...]
    counts: Counts

    @property
    def first_failure(self) -> CheckFailure | None:
        """What to fix first: what blocks most checks, then errors, in the order in which a job meets them."""
        failures = [failure for area in self.areas for failure in area.failures]
        return min(failures, key=lambda candidate: (-len(candidate.consequences), not candidate.is_error), default=None)


def sort_by_area(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """By area, in the order in which a job meets them, then by name."""
    positions = {area: number for number, area in enumerate(AREAS)}
    return sorted(
        outcomes, key=lambda outcome: (positions.get(outcome.area, len(positions)), outcome.area, outcome.check)
    )


def fold(report: Report, max_chars: int = 0) -> FoldedReport:
    """The report, folded; ``max_chars`` limits the host lists, in characters."""
    fleet = Fleet(report.hosts, max_chars)
    outcomes = sort_by_area(report.outcomes)
    causes = RootCauses(outcomes)
    unexplained = {outcome.check: causes.unexplained(outcome) for outcome in outcomes}
    standings = {outcome.check: outcome_class(outcome, unexplained[outcome.check]) for outcome in outcomes}
    areas = [
        _area(name, [outcome for outcome in outcomes if outcome.area == name], standings, causes, fleet)
        for name in dict.fromkeys(outcome.area for outcome in outcomes)
    ]
    unknown = _gaps(
        fleet, {check: {host: why.text for host, why in unexplained[check].items()} for check in unexplained}
    )
    skipped = _gaps(fleet, {outcome.check: _fleet_wide(outcome.skipped, fleet) for outcome in outcomes})
    waived = tuple(group for outcome in outcomes for group in _waived_groups(outcome, fleet))
    return FoldedReport(fleet, tuple(areas), unknown, skipped, waived, counted(report, standings))


def _area(
    name: str, outcomes: Sequence[Outcome], standings: Mapping[str, str], causes: RootCauses, fleet: Fleet
) -> Area:
    failures = [_failure(outcome, causes, fleet) for outcome in outcomes if outcome.findings]
    clear = [outcome for outcome in outcomes if outcome.complete and not outcome.waived]
    healthy = [outcome for outcome in clear if standings[outcome.check] in ("passed", "hidden")]
    return Area(
        name,
        tuple(sorted(failures, key=lambda failure: (not failure.is_error, -len(failure.consequences)))),
        tuple(outcome for outcome in outcomes if outcome.crashed),
        tuple(healthy),
        sum(standings[outcome.check] != "skipped" for outcome in outcomes),
    )


def _failure(outcome: Outcome, causes: RootCauses, fleet: Fleet) -> CheckFailure:
    hosts = fleet.ordered(host for finding in outcome.findings for host in finding.hosts)
    consequences = tuple(sorted(causes.consequences.get(outcome.check, ())))
    return CheckFailure(outcome, grouped(outcome.findings, fleet), hosts, consequences)


def _waived_groups(outcome: Outcome, fleet: Fleet) -> Iterator[WaivedGroup]:
    alike: dict[tuple[str, str], list[Finding]] = {}
    for waived in outcome.waived:
        alike.setdefault((waived.until, waived.reason), []).append(waived.finding)
    for (until, reason), findings in sorted(alike.items(), key=lambda item: item[0]):
        hosts = fleet.ordered(host for finding in findings for host in finding.hosts)
        yield WaivedGroup(outcome.check, reason, until, grouped(findings, fleet), hosts)


def _fleet_wide(skipped: Mapping[str, str], fleet: Fleet) -> Mapping[str, str]:
    """What applies to no host, for one reason, does not apply to the fleet."""
    reasons = set(skipped.values())
    return {"": reasons.pop()} if len(reasons) == 1 and skipped.keys() == set(fleet.hosts) else skipped


def _gaps(fleet: Fleet, reasons: Mapping[str, Mapping[str, str]]) -> tuple[Gap, ...]:
    """One gap for every reason and set of hosts, most checks first."""
    checks: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for check, by_host in reasons.items():
        hosts: dict[tuple[str, bool], list[str]] = {}
        for host, text in by_host.items():
            hosts.setdefault((text, bool(host)), []).append(host)
        for (text, _), named in hosts.items():
            checks.setdefault((text, fleet.ordered(named)), []).append(check)
    gaps = [Gap(reason, hosts, tuple(names)) for (reason, hosts), names in checks.items()]
    return tuple(sorted(gaps, key=lambda gap: (-len(gap.checks), -len(gap.hosts), gap.reason, gap.checks, gap.hosts)))

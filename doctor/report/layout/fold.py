"""Folds a report: equal findings over hosts, consequences under their root cause, equal reasons over checks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from doctor.engine.areas import AREAS
from doctor.engine.result import Finding, Outcome, Report, Severity
from doctor.report.layout.group_findings import Group, grouped
from doctor.report.layout.host_names import Fleet
from doctor.report.layout.tally import Causes, Counts, counted, standing


class Failure(msgspec.Struct, frozen=True):
    """A check that found something."""

    outcome: Outcome
    groups: tuple[Group, ...]
    hosts: tuple[str, ...]
    """All hosts that are to blame."""
    hides: tuple[str, ...]
    """The checks that could not look at these hosts because of what was found."""

    @property
    def is_error(self) -> bool:
        return self.outcome.severity is Severity.ERROR


class Gap(msgspec.Struct, frozen=True):
    """Checks that did not look at some hosts, all for one reason. No hosts: the fleet as a whole."""

    reason: str
    hosts: tuple[str, ...]
    checks: tuple[str, ...]


class Exemption(msgspec.Struct, frozen=True):
    """Findings of one check that are waived for one reason until one day."""

    check: str
    reason: str
    until: str
    groups: tuple[Group, ...]
    hosts: tuple[str, ...]


class Area(msgspec.Struct, frozen=True):
    """One group of checks, less those that do not apply."""

    name: str
    failures: tuple[Failure, ...]
    crashed: tuple[Outcome, ...]
    healthy: tuple[Outcome, ...]
    total: int


class Folded(msgspec.Struct, frozen=True):
    """A report, ready to be put into words."""

    fleet: Fleet
    areas: tuple[Area, ...]
    unknown: tuple[Gap, ...]
    skipped: tuple[Gap, ...]
    waived: tuple[Exemption, ...]
    counts: Counts

    @property
    def first(self) -> Failure | None:
        """What to mend first: what hides most, then errors, in the order in which a job meets them."""
        failures = [failure for area in self.areas for failure in area.failures]
        return min(failures, key=lambda one: (-len(one.hides), not one.is_error), default=None)


def in_order(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """By area, in the order in which a job meets them, then by name."""
    place = {area: number for number, area in enumerate(AREAS)}
    return sorted(outcomes, key=lambda one: (place.get(one.area, len(place)), one.area, one.check))


def fold(report: Report, longest: int = 0) -> Folded:
    """The report, folded; ``longest`` limits the host lists, in characters."""
    fleet = Fleet(report.hosts, longest)
    outcomes = in_order(report.outcomes)
    causes = Causes(outcomes)
    own = {one.check: causes.own(one) for one in outcomes}
    standings = {one.check: standing(one, own[one.check]) for one in outcomes}
    areas = [
        _area(name, [one for one in outcomes if one.area == name], standings, causes, fleet)
        for name in dict.fromkeys(one.area for one in outcomes)
    ]
    unknown = _gaps(fleet, {one: {host: why.text for host, why in own[one].items()} for one in own})
    skipped = _gaps(fleet, {one.check: _anywhere(one.skipped, fleet) for one in outcomes})
    waived = tuple(exemption for one in outcomes for exemption in _exemptions(one, fleet))
    return Folded(fleet, tuple(areas), unknown, skipped, waived, counted(report, standings))


def _area(name: str, outcomes: Sequence[Outcome], standings: Mapping[str, str], causes: Causes, fleet: Fleet) -> Area:
    failures = [_failure(one, causes, fleet) for one in outcomes if one.findings]
    clear = [one for one in outcomes if one.complete and not one.waived]
    healthy = [one for one in clear if standings[one.check] in ("passed", "hidden")]
    return Area(
        name,
        tuple(sorted(failures, key=lambda one: (not one.is_error, -len(one.hides)))),
        tuple(one for one in outcomes if one.crashed),
        tuple(healthy),
        sum(standings[one.check] != "skipped" for one in outcomes),
    )


def _failure(outcome: Outcome, causes: Causes, fleet: Fleet) -> Failure:
    hosts = fleet.ordered(host for finding in outcome.findings for host in finding.hosts)
    hides = tuple(sorted(causes.hides.get(outcome.check, ())))
    return Failure(outcome, grouped(outcome.findings, fleet), hosts, hides)


def _exemptions(outcome: Outcome, fleet: Fleet) -> Iterator[Exemption]:
    alike: dict[tuple[str, str], list[Finding]] = {}
    for one in outcome.waived:
        alike.setdefault((one.until, one.reason), []).append(one.finding)
    for (until, reason), findings in sorted(alike.items(), key=lambda one: one[0]):
        hosts = fleet.ordered(host for finding in findings for host in finding.hosts)
        yield Exemption(outcome.check, reason, until, grouped(findings, fleet), hosts)


def _anywhere(skipped: Mapping[str, str], fleet: Fleet) -> Mapping[str, str]:
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

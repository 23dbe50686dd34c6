"""Folds a report: equal findings over hosts, consequences under their root cause, equal reasons over checks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from doctor.engine.check_files import AREAS
from doctor.engine.grouping import lists_by_key
from doctor.engine.result import Finding, Outcome, Report, Severity, can_be_left_over
from doctor.report.layout.group_findings import FindingGroup, grouped
from doctor.report.layout.host_names import Fleet
from doctor.report.layout.tally import Counts, RootCauses, counted, outcome_class


class FollowingFailure(msgspec.Struct, frozen=True):
    """The findings of one check that follow from those of another."""

    check: str
    groups: tuple[FindingGroup, ...]
    hosts: tuple[str, ...]
    is_error: bool


class CheckFailure(msgspec.Struct, frozen=True):
    """A check that found something, with all that follows from it."""

    outcome: Outcome
    groups: tuple[FindingGroup, ...]
    """The findings that follow from no other."""
    hosts: tuple[str, ...]
    """All hosts of the findings, and of those that follow from them."""
    consequences: tuple[str, ...]
    """The checks that could not evaluate these hosts because of this finding."""
    following: tuple[FollowingFailure, ...] = ()

    @property
    def is_error(self) -> bool:
        """One of its findings, or of those that follow from them, is an error."""
        is_own_error = self.outcome.severity is Severity.ERROR and not all(
            group.finding.is_warning for group in self.groups
        )
        return is_own_error or any(other.is_error for other in self.following)

    def errors_alone(self) -> CheckFailure:
        """Without its warnings and their hosts, where some of its findings are errors."""
        if self.outcome.severity is not Severity.ERROR:
            return self
        groups = tuple(group for group in self.groups if not group.finding.is_warning)
        if not groups or len(groups) == len(self.groups):
            return self
        following = tuple(other for other in self.following if other.is_error)
        kept = {host for group in groups for host in group.hosts}.union(*(other.hosts for other in following))
        hosts = tuple(host for host in self.hosts if host in kept)
        return msgspec.structs.replace(self, groups=groups, following=following, hosts=hosts)


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
    ended_by: str = ""
    """The check of what stopped the training of the smoke run or of the watched program; empty where nothing did."""

    @property
    def failures(self) -> tuple[CheckFailure, ...]:
        """What stops the job first: errors that block other checks, errors, warnings; then as a job meets them.

        What stopped a training comes before all else that its ranks showed. A warning about all hosts was true
        yesterday, too: one about some of them comes before it.
        """
        count = len(self.fleet.hosts)
        failures = [failure for area in self.areas for failure in area.failures]
        most = max((len(failure.consequences) for failure in failures if failure.outcome.area == "smoke"), default=0)

        def order(failure: CheckFailure) -> tuple[bool, int, bool, bool]:
            is_widespread = count > 1 and len(failure.hosts) == count
            is_end = failure.outcome.check == self.ended_by
            blocked = most if is_end else len(failure.consequences)
            return not failure.is_error, -blocked, not failure.is_error and is_widespread, not is_end

        return tuple(sorted(failures, key=order))

    @property
    def first_failure(self) -> CheckFailure | None:
        return next(iter(self.failures), None)


def sort_by_area(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """By area, in the order in which a job meets them, then by name."""
    positions = {area: number for number, area in enumerate(AREAS)}
    return sorted(
        outcomes, key=lambda outcome: (positions.get(outcome.area, len(positions)), outcome.area, outcome.check)
    )


def fold(report: Report, max_chars: int = 0) -> FoldedReport:
    """The report, folded; ``max_chars`` limits the host lists, in characters."""
    fleet = Fleet.of_report(report, max_chars)
    outcomes = sort_by_area(report.outcomes)
    causes = RootCauses(outcomes)
    unexplained = {outcome.check: causes.unexplained(outcome) for outcome in outcomes}
    standings = {outcome.check: outcome_class(outcome, unexplained[outcome.check]) for outcome in outcomes}
    following = _Following(outcomes, fleet)
    areas = [
        _area(name, [outcome for outcome in outcomes if outcome.area == name], standings, causes, fleet, following)
        for name in dict.fromkeys(outcome.area for outcome in outcomes)
    ]
    unknown = _gaps(
        fleet, {check: {host: why.text for host, why in unexplained[check].items()} for check in unexplained}
    )
    skipped = _gaps(fleet, {outcome.check: _fleet_wide(outcome.skipped, fleet) for outcome in outcomes})
    waived = tuple(group for outcome in outcomes for group in _waived_groups(outcome, fleet))
    return FoldedReport(fleet, tuple(areas), unknown, skipped, waived, counted(report, standings), _ended_by(report))


def _ended_by(report: Report) -> str:
    if not report.smoke or not report.smoke.failures:
        return ""
    from doctor.engine.smoke_failures import FAILURE_KINDS

    return FAILURE_KINDS[report.smoke.failures[0].kind].check


def _area(
    name: str,
    outcomes: Sequence[Outcome],
    standings: Mapping[str, str],
    causes: RootCauses,
    fleet: Fleet,
    following: _Following,
) -> Area:
    failures = [
        _failure(outcome, independent, causes, fleet, following)
        for outcome in outcomes
        if (independent := following.independent[id(outcome)])
    ]
    clear = [outcome for outcome in outcomes if outcome.complete and not outcome.waived]
    healthy = [outcome for outcome in clear if standings[outcome.check] in ("passed", "hidden")]
    return Area(
        name,
        tuple(failures),
        tuple(outcome for outcome in outcomes if outcome.crashed),
        tuple(healthy),
        sum(standings[outcome.check] != "skipped" for outcome in outcomes),
    )


def _failure(
    outcome: Outcome, independent: Sequence[Finding], causes: RootCauses, fleet: Fleet, following: _Following
) -> CheckFailure:
    """A check's findings that follow from no other; with those of other checks that follow from it."""
    others = following.of(outcome.check)
    named = [host for finding in independent for host in finding.hosts]
    hosts = fleet.ordered((*named, *(host for other in others for host in other.hosts)))
    checks = (outcome.check, *(other.check for other in others))
    blocked = {check for name in checks for check in causes.blocked(name)}.difference(checks)
    return CheckFailure(outcome, grouped(independent, fleet), hosts, tuple(sorted(blocked)), others)


class _Following:
    """Which findings stand on their own, and which hang on those of another check.

    A report that another program wrote is held to what it shows: a cause has a finding of its own on every host,
    or on those of all parts of a cut but one.
    """

    def __init__(self, outcomes: Sequence[Outcome], fleet: Fleet) -> None:
        self.fleet = fleet
        self.independent: dict[int, list[Finding]] = {}
        """By the identity of the outcome."""
        self._by_cause: dict[str, list[tuple[Outcome, list[Finding]]]] = {}
        roots = {
            outcome.check: {
                host for finding in outcome.findings if not finding.follows_from for host in finding.hosts or ("",)
            }
            for outcome in outcomes
        }
        for outcome in outcomes:
            by_cause: dict[str, list[Finding]] = {}
            for finding in outcome.findings:
                blamed = roots.get(finding.follows_from, set()) if finding.follows_from != outcome.check else set()
                hosts = {*(finding.hosts or ("",))}
                explained = "" in blamed or (hosts & blamed and can_be_left_over(finding, hosts - blamed))
                by_cause.setdefault(finding.follows_from if explained else "", []).append(finding)
            self.independent[id(outcome)] = by_cause.pop("", [])
            for cause, findings in by_cause.items():
                self._by_cause.setdefault(cause, []).append((outcome, findings))

    def of(self, cause: str) -> tuple[FollowingFailure, ...]:
        """What follows from the findings of ``cause``, errors first."""
        failures = [
            FollowingFailure(
                outcome.check,
                grouped(findings, self.fleet),
                self.fleet.ordered(host for finding in findings for host in finding.hosts),
                any(outcome.severity_of(finding) is Severity.ERROR for finding in findings),
            )
            for outcome, findings in self._by_cause.get(cause, ())
        ]
        return tuple(sorted(failures, key=lambda failure: not failure.is_error))


def _waived_groups(outcome: Outcome, fleet: Fleet) -> Iterator[WaivedGroup]:
    alike = lists_by_key(((waived.until, waived.reason), waived.finding) for waived in outcome.waived)
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
        hosts = lists_by_key(((text, bool(host)), host) for host, text in by_host.items())
        for (text, _), named in hosts.items():
            checks.setdefault((text, fleet.ordered(named)), []).append(check)
    gaps = [Gap(reason, hosts, tuple(names)) for (reason, hosts), names in checks.items()]
    return tuple(sorted(gaps, key=lambda gap: (-len(gap.checks), -len(gap.hosts), gap.reason, gap.checks, gap.hosts)))

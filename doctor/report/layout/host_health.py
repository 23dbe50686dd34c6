"""The healthy, bad and unknown hosts of a run. Pure."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from doctor.engine.grouping import lists_by_key
from doctor.engine.result import Report, Severity, accused_hosts
from doctor.report.layout.fold import sort_by_area
from doctor.report.layout.tally import RootCauses


class HostHealth(msgspec.Struct, frozen=True):
    """The hosts of a run, each in one of three tuples, in inventory order."""

    healthy: tuple[str, ...]
    """Checked, without an error, and nothing on it is unknown that could be one, except as a finding's consequence."""
    bad: tuple[str, ...]
    """Hosts that an error speaks against."""
    unknown: tuple[str, ...]
    """Unknown: a check that finds errors could not judge it, a check crashed, or no check ran; or it is one of several
    hosts in an error that does not show the culprit among them."""


def classify_hosts(report: Report, sound: Collection[str] = ()) -> HostHealth:
    """How every host is. ``sound``: hosts that were judged healthy without the others, which are bad beside them."""
    errors = [
        finding
        for outcome in report.outcomes
        for finding in outcome.findings
        if outcome.severity_of(finding) is Severity.ERROR
    ]
    named = {host for finding in errors for host in finding.hosts if host not in sound}
    accused = {host for finding in errors for host in accused_hosts(finding, len(report.hosts))}
    bad = named if sound else accused
    evaluated = {host for outcome in report.outcomes for host in outcome.evaluated_hosts}
    grave = {outcome.check for outcome in report.outcomes if outcome.severity is Severity.ERROR or outcome.crashed}
    unknown = {host for host, names in unknown_hosts(report).items() if grave.intersection(names)}
    healthy = [host for host in report.hosts if host not in named and host not in unknown and host in evaluated]
    healthy_set = set(healthy)
    return HostHealth(
        tuple(healthy),
        tuple(host for host in report.hosts if host in bad),
        tuple(host for host in report.hosts if host not in bad and host not in healthy_set),
    )


def unknown_hosts(report: Report) -> dict[str, list[str]]:
    """Hosts with the checks that could not judge them for a reason of their own; the empty name is the fleet."""
    outcomes = sort_by_area(report.outcomes)
    causes = RootCauses(outcomes)
    hosts = ((outcome, dict.fromkeys((*causes.unexplained(outcome), *outcome.crashed))) for outcome in outcomes)
    return lists_by_key((host, outcome.check) for outcome, of_outcome in hosts for host in of_outcome)

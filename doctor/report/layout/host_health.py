"""Which hosts of a run are well, which are bad, and which nobody can tell. Pure."""

from __future__ import annotations

import msgspec

from doctor.engine.result import Report, Severity
from doctor.report.layout.fold import in_order
from doctor.report.layout.tally import Causes


class Health(msgspec.Struct, frozen=True):
    """The hosts of a run, each in one of three tuples, in inventory order."""

    healthy: tuple[str, ...]
    """Looked at, without an error, and nothing on it is unknown but what another finding explains."""
    bad: tuple[str, ...]
    """Hosts that an error blames."""
    unknown: tuple[str, ...]
    """Nobody can tell: something could not be read, a check crashed, or no check looked."""


def health(report: Report) -> Health:
    """How every host is."""
    bad = {
        host
        for one in report.outcomes
        if one.severity is Severity.ERROR
        for finding in one.findings
        for host in finding.hosts
    }
    seen = {host for one in report.outcomes for host in one.looked}
    dark = set(unknown_hosts(report))
    fine = [host for host in report.hosts if host not in bad and host not in dark and host in seen]
    well = set(fine)
    return Health(
        tuple(fine),
        tuple(host for host in report.hosts if host in bad),
        tuple(host for host in report.hosts if host not in bad and host not in well),
    )


def unknown_hosts(report: Report) -> dict[str, list[str]]:
    """Hosts with the checks that could not judge them for a reason of their own; the empty name is the fleet."""
    outcomes = in_order(report.outcomes)
    causes = Causes(outcomes)
    found: dict[str, list[str]] = {}
    for one in outcomes:
        for host in dict.fromkeys((*causes.own(one), *one.crashed)):
            found.setdefault(host, []).append(one.check)
    return found

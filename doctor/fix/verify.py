"""Verifies fixes: runs the checks that had findings again, and expects them to pass. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

import msgspec

from doctor.engine.result import Outcome, Report
from doctor.engine.sanitize import strip_control_chars
from doctor.fix.select import finding_message


class Verification(msgspec.Struct, frozen=True):
    """The result of one check on one host after the steps."""

    host: str
    check: str
    state: Literal["green", "waits", "red", "unknown"]
    """``waits``: the finding also depends on hosts that are not treated yet."""
    reason: str = ""


def verify(
    report: Report,
    checks_by_host: Mapping[str, Collection[str]],
    applied_hosts: Collection[str],
    planned_hosts: Collection[str],
) -> list[Verification]:
    """One for every check of every host of ``checks_by_host``; ``planned_hosts`` are all hosts of the plan."""
    outcomes = {outcome.check: outcome for outcome in report.outcomes}
    waiting = set(planned_hosts) - set(applied_hosts)
    return [
        _verify_check(host, outcomes.get(check), check, waiting)
        for host, checks in checks_by_host.items()
        for check in sorted(checks)
    ]


def _verify_check(host: str, outcome: Outcome | None, check: str, waiting: Collection[str]) -> Verification:
    if outcome is None:
        return Verification(host, check, "unknown", "the check was not run again")
    against = [finding for finding in outcome.findings if host in finding.hosts]
    standing = [finding for finding in against if not set(finding.hosts) & set(waiting)]
    if standing:
        return Verification(host, check, "red", finding_message(standing[0]))
    why = outcome.unknown.get(host) or outcome.unknown.get("")
    if why:
        return Verification(host, check, "unknown", strip_control_chars(why.text))
    if host in outcome.crashed or "" in outcome.crashed:
        return Verification(host, check, "unknown", "the check crashed")
    if against:
        return Verification(host, check, "waits")
    if host not in outcome.evaluated_hosts:
        skipped = outcome.skipped.get(host) or outcome.skipped.get("") or "the check did not evaluate the host"
        return Verification(host, check, "unknown", strip_control_chars(skipped))
    return Verification(host, check, "green")

"""Findings of a trial that another check explains: one fault is reported once, by the check that can fix it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from doctor.engine.result import Finding, Outcome, Reason, Severity

EXPLAINED_BY: Mapping[str, tuple[str, ...]] = {
    "net-unreachable": ("firewall-blocks-job", "interface-unreachable", "device-ip-conflict"),
    "net-port-blocked": ("firewall-blocks-job",),
    "net-port-unavailable": ("hccl-port-taken", "master-port-taken"),
    "net-device-path-broken": ("device-unreachable", "device-link-down", "rdma-gid-wrong"),
    "interface-unreachable": ("net-answered-by-other",),
    "peer-unreachable": ("net-unreachable", "net-port-blocked", "net-answered-by-other"),
}
"""By check of a trial, or of what leads to one: the checks that read the cause on the hosts, or tried more."""
ONLY_WITH: Mapping[str, tuple[str, str]] = {"interface-unreachable": ("fault", "shared")}
"""By check: a value that its findings must have to be explained. Of two hosts with one address the trial names both."""
EVERYONE = "every other host"
"""The value ``peers`` of a finding that concerns all of them."""


def withdraw_explained(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes; a finding that another one explains is unknown instead, with that check as its root cause.

    A finding is explained where the other names one of its hosts, and the rest of its hosts among its ``peers`` if it
    has any. What remains is seen once the cause is removed. Only an error explains: beside a warning, what a trial has
    proved stays, else the run would be neither failed nor healthy.
    """
    by_check = {outcome.check: outcome for outcome in outcomes}
    return [_withdraw(outcome, by_check) if outcome.check in EXPLAINED_BY else outcome for outcome in outcomes]


def _withdraw(outcome: Outcome, by_check: Mapping[str, Outcome]) -> Outcome:
    kept, unknown = [], dict(outcome.unknown)
    name, value = ONLY_WITH.get(outcome.check, ("", None))
    for finding in outcome.findings:
        can_be = not name or finding.values.get(name) == value
        cause = _cause(finding, outcome.check, by_check) if can_be else ""
        if cause:
            for host in finding.hosts:
                unknown.setdefault(host, Reason(f"a trial failed: {finding}"[:300], cause))
        else:
            kept.append(finding)
    return msgspec.structs.replace(outcome, findings=tuple(kept), unknown=unknown)


def _cause(finding: Finding, check: str, by_check: Mapping[str, Outcome]) -> str:
    for name in EXPLAINED_BY[check]:
        outcome = by_check.get(name)
        if outcome and any(_explains(other, finding) for other in outcome.findings if _is_error(outcome, other)):
            return name
    return ""


def _is_error(outcome: Outcome, finding: Finding) -> bool:
    return outcome.severity_of(finding) is Severity.ERROR


def _explains(other: Finding, finding: Finding) -> bool:
    shared, rest = set(other.hosts) & set(finding.hosts), set(finding.hosts) - set(other.hosts)
    peers = other.values.get("peers", [])
    named = {peers} if isinstance(peers, str) else set(peers) if isinstance(peers, (list, tuple)) else set()
    return bool(shared) and (not rest or EVERYONE in named or rest <= named)

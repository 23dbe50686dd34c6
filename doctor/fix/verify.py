"""Verifies fixes: runs the checks that had findings again, and expects them to pass. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import msgspec

from doctor.engine.result import Finding, Outcome, Report
from doctor.engine.sanitize import strip_control_chars
from doctor.facts.firewall.job import UNCLEAR_RULE
from doctor.fix.select import finding_message


class Verification(msgspec.Struct, frozen=True):
    """The result of one check on one host after the steps."""

    host: str
    check: str
    state: Literal["green", "waits", "red", "new", "unknown"]
    """``waits``: the finding also depends on hosts not treated yet; ``new``: it was not there before the fix."""
    reason: str = ""
    unrelated: bool = False
    """Unknown for a reason that was there before and is not the treated finding: it does not stop the rollout."""


def verify(
    report: Report,
    checks_by_host: Mapping[str, Collection[str]],
    applied_hosts: Collection[str],
    planned_hosts: Collection[str],
    findings_before: Mapping[tuple[str, str], Sequence[Finding]] = {},
) -> list[Verification]:
    """One for every check of every host of ``checks_by_host``; ``planned_hosts`` are all hosts of the plan.

    ``findings_before`` are those that the plan treats, by host and check.
    """
    outcomes = {outcome.check: outcome for outcome in report.outcomes}
    waiting = set(planned_hosts) - set(applied_hosts)
    return [
        _verify_check(host, outcomes.get(check), check, waiting, findings_before.get((host, check), ()))
        for host, checks in checks_by_host.items()
        for check in sorted(checks)
    ]


def new_findings(
    report: Report, before: Collection[tuple[str, str, str]], hosts: Collection[str]
) -> list[Verification]:
    """The findings of these hosts that are not among ``before``, as `finding_keys` gives them."""
    return [
        Verification(host, outcome.check, "new", finding_message(finding))
        for outcome in report.outcomes
        for finding in outcome.findings
        for host in finding.hosts
        if host in hosts and (host, outcome.check, finding.template) not in before
    ]


def finding_keys(report: Report) -> set[tuple[str, str, str]]:
    """Host, check and template of every finding: without the numbers that change with every run."""
    return {
        (host, outcome.check, finding.template)
        for outcome in report.outcomes
        for finding in outcome.findings
        for host in finding.hosts
    }


def _verify_check(
    host: str, outcome: Outcome | None, check: str, waiting: Collection[str], before: Sequence[Finding]
) -> Verification:
    if outcome is None:
        return Verification(host, check, "unknown", "the check was not run again")
    against = [finding for finding in outcome.findings if host in finding.hosts]
    standing = [finding for finding in against if not set(finding.hosts) & set(waiting)]
    if standing:
        return Verification(host, check, "red", finding_message(standing[0]))
    why = outcome.unknown.get(host) or outcome.unknown.get("")
    if why:
        return Verification(
            host, check, "unknown", strip_control_chars(why.text), unrelated=_is_unrelated(why.text, before)
        )
    if host in outcome.crashed or "" in outcome.crashed:
        return Verification(host, check, "unknown", "the check crashed")
    if against:
        return Verification(host, check, "waits")
    if host not in outcome.evaluated_hosts:
        skipped = outcome.skipped.get(host) or outcome.skipped.get("") or "the check did not evaluate the host"
        return Verification(host, check, "unknown", strip_control_chars(skipped))
    return Verification(host, check, "green")


def _is_unrelated(reason: str, before: Sequence[Finding]) -> bool:
    """The verdict depends on a firewall rule that cannot be evaluated, and none of those that the finding named."""
    rules = [str(rule) for finding in before for rule in finding.values.get("rules", ())]
    return UNCLEAR_RULE in reason and bool(rules) and not any(rule.split(" (chain ")[0] in reason for rule in rules)

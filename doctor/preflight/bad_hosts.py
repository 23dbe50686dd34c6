"""The usable hosts of a report, and the reasons against the rest. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from doctor.engine.catalog import ROOT_CAUSE_CHECKS
from doctor.engine.exit_code import FailOn, OnUnknown, exit_code
from doctor.engine.result import Finding, Outcome, Report, Severity


class FailureRules(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a run fail; with ``strict`` every warning does."""

    strict: bool = False
    on_unknown: OnUnknown = "fail"
    fail_on: FailOn = "error"

    def code(self, report: Report) -> int:
        return exit_code(report, strict=self.strict, on_unknown=self.on_unknown, fail_on=self.fail_on)

    @property
    def fails_on_unknown(self) -> bool:
        return self.on_unknown == "fail" or (self.strict and self.on_unknown == "warn")

    def counts_as_failure(self, outcome: Outcome, finding: Finding) -> bool:
        """Whether a finding of the outcome makes the run fail."""
        return outcome.severity_of(finding) is Severity.ERROR or self.fail_on == "warning" or self.strict


def healthy_hosts(report: Report, rules: FailureRules = FailureRules()) -> tuple[str, ...]:
    """The hosts that nothing is held against, in inventory order."""
    excluded = bad_hosts(report, rules)
    return tuple(host for host in report.hosts if host not in excluded)


def bad_hosts(
    report: Report, rules: FailureRules = FailureRules(), names: Mapping[str, str] | None = None
) -> dict[str, list[str]]:
    """The hosts that cannot be used, each with the failed checks; in inventory order.

    A host is bad when a finding that makes the run fail blames it, when a check crashed on it, when it gave no
    answer, and, unless what is unknown is forgiven, when anything on it is unknown that could make the run fail. A
    finding that blames two hosts makes both bad: which of them is wrong is not known. What blames no host makes none
    bad, and is not cured by leaving any out. ``names``: other names of hosts that findings may use, such as a rank
    table's server_ids.
    """
    checks_by_host = {**unevaluated_hosts(report, rules), **blamed_hosts(report, rules, names or {})}
    return {host: checks_by_host[host] for host in report.hosts if host in checks_by_host}


def blamed_hosts(report: Report, rules: FailureRules, names: Mapping[str, str]) -> dict[str, list[str]]:
    """The checks that failed on each host of the report; ``names`` leads from other names to hosts."""
    checks_by_host: dict[str, list[str]] = {}
    for outcome in report.outcomes:
        counted = (finding for finding in outcome.findings if rules.counts_as_failure(outcome, finding))
        for name in dict.fromkeys(name for finding in counted for name in finding.hosts):
            host = name if name in report.hosts else names.get(name, "")
            checks_by_host.setdefault(host, []).append(outcome.check)
    return {host: list(dict.fromkeys(checks)) for host, checks in checks_by_host.items() if host in report.hosts}


def unevaluated_hosts(report: Report, rules: FailureRules) -> dict[str, list[str]]:
    """Not known is never healthy. A check that waits for another one's answer adds nothing to that one."""
    root_causes_by_host: dict[str, dict[str, str]] = {}
    for outcome in report.outcomes:
        for host in outcome.crashed:
            root_causes_by_host.setdefault(host, {})[outcome.check] = ""
        may_fail = outcome.severity is Severity.ERROR or rules.fail_on == "warning" or rules.strict
        if (rules.fails_on_unknown and may_fail) or outcome.check in ROOT_CAUSE_CHECKS:
            for host, reason in outcome.unknown.items():
                root_causes_by_host.setdefault(host, {})[outcome.check] = reason.root_cause
    return {host: _roots(whys) for host, whys in root_causes_by_host.items() if host}


def _roots(whys: Mapping[str, str]) -> list[str]:
    """Checks, each with the one that it waits for, without those that only wait. No answer explains all the rest."""
    return [check for check in ROOT_CAUSE_CHECKS if check in whys][:1] or [
        check for check, root in whys.items() if root not in whys
    ]

"""Which hosts a job can start on when some are bad: enough healthy ones, judged again without the others. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from doctor.engine.addresses import means_own_host
from doctor.engine.catalog import ROOT_CAUSE_CHECKS
from doctor.engine.evaluate import FactCache
from doctor.engine.exit_code import Exit, FailOn, OnUnknown, exit_code
from doctor.engine.record import Run
from doctor.engine.result import CUT_PARTS, Finding, Outcome, Report, Severity, accused_hosts
from doctor.engine.sanitize import printable_excerpt
from doctor.engine.texts import filled
from doctor.facts.interfaces import Interfaces
from doctor.facts.master_address import host_of_master
from doctor.facts.master_trial import MasterTrial
from doctor.facts.names import HostNames
from doctor.job import LaunchConfig
from doctor.rank_table.run_subset import subset, table_host_names

__all__ = ["FailureRules", "SpareSelection", "bad_hosts", "select_hosts"]

MAX_ROUNDS = 16
"""Judgements. Each leaves out all that are to blame, so that two or three are usual."""

Judge = Callable[[Run], Report]


class SpareSelection(msgspec.Struct, frozen=True, kw_only=True):
    """The hosts to start on, and why not the others."""

    hosts: tuple[str, ...]
    """In inventory order. Without enough healthy hosts: those that are left."""
    spares: tuple[str, ...] = ()
    """Healthy, and not needed."""
    excluded: dict[str, tuple[str, ...]] = {}
    """The checks that a host was left out for; without ``need``, no host of a cut that has no culprit."""
    need: int = 0
    """How many were asked for; 0: all that are healthy, and nothing is left out to reach a number."""
    enough: bool = True
    code: int = 0
    report: Report
    """Of ``hosts`` alone where there are enough, else of all."""
    run: Run
    """What ``report`` judges."""
    obstacles: tuple[str, ...] = ()
    """What stands against a start beside the findings of a report."""


def select_hosts(
    run: Run,
    report: Report,
    evaluate: Judge,
    need: int,
    *,
    fail_on: FailOn = "error",
    on_unknown: OnUnknown = "fail",
    strict: bool = False,
    writes_table: bool = False,
) -> SpareSelection:
    """The first ``need`` healthy hosts, such that they are healthy without the others, too; 0 is as many as there are.

    ``evaluate`` judges a part of ``run`` by the checks, waivers and skips that made ``report``. Hosts that findings
    blame go first: what was unknown on others only for their sake is known then. Each round leaves out at least one
    more, so it comes to an end. The code is 0 when the chosen hosts are judged healthy and the job can start on them;
    else it is the whole run's, and never 0.

    Leaving hosts out changes the job: MASTER_ADDR must be a host that stays, and a rank table must be written anew
    (``writes_table``). A smoke run in which anything failed proves nothing about the others: the bad hosts took part.
    """
    rules = FailureRules(strict=strict, on_unknown=on_unknown, fail_on=fail_on)
    if not need:
        names = table_host_names(run)
        bad = bad_hosts(report, rules, names)
        hosts = tuple(host for host in run.hosts if host not in bad)
        accused = bad_hosts(report, rules, names, lambda finding: accused_hosts(finding, len(report.hosts)))
        excluded = {host: tuple(checks) for host, checks in accused.items()}
        return SpareSelection(hosts=hosts, excluded=excluded, code=rules.code(report), report=report, run=run)
    return _HostSearch(run, report, evaluate, need, rules).select(writes_table)


class _HostSearch:
    """Rounds of judging and leaving out."""

    def __init__(self, run: Run, report: Report, evaluate: Judge, need: int, rules: FailureRules) -> None:
        self.run, self.report, self.evaluate, self.need, self.rules = run, report, evaluate, need, rules
        self.names = table_host_names(run)
        self.master_host = master_host(run)
        self.excluded: dict[str, tuple[str, ...]] = {}
        self.remaining_hosts = tuple(run.hosts)
        self.smoke_passed = _smoke_passed(run, report, rules)

    def select(self, writes_table: bool) -> SpareSelection:
        report, part = self.report, self.run
        for _ in range(MAX_ROUNDS):
            newly_excluded = self._hosts_to_exclude(report)
            if not newly_excluded and len(part.hosts) == min(self.need, len(self.remaining_hosts)):
                break
            self.excluded.update((host, tuple(checks)) for host, checks in newly_excluded.items())
            self.remaining_hosts = tuple(host for host in self.remaining_hosts if host not in self.excluded)
            if len(self.remaining_hosts) < self.need:
                break
            report, part = self._evaluate_subset(self.remaining_hosts if newly_excluded else self._first())
        else:
            return self._not_enough(filled("no stable selection of hosts after {0} evaluations", MAX_ROUNDS))
        if len(self.remaining_hosts) < self.need:
            return self._not_enough(filled("{0} healthy, {1} needed", _hosts(len(self.remaining_hosts)), self.need))
        return self._selection(report, part, writes_table)

    def _hosts_to_exclude(self, report: Report) -> dict[str, list[str]]:
        """The hosts that findings name; only where there are none, those with unknown results."""

        def left_out(finding: Finding) -> list[str]:
            return _hosts_to_leave_out(finding, len(report.hosts), self.need, self.master_host)

        named = blamed_hosts(report, self.rules, self.names, left_out)
        checks_by_host = named or unevaluated_hosts(report, self.rules)
        return {host: checks for host, checks in checks_by_host.items() if host in self.remaining_hosts}

    def _first(self) -> tuple[str, ...]:
        """As many as are needed, the job's master among them where it can be."""
        first = self.remaining_hosts[: self.need]
        if self.master_host in self.remaining_hosts and self.master_host not in first:
            return (*first[:-1], self.master_host)
        return first

    def _evaluate_subset(self, hosts: tuple[str, ...]) -> tuple[Report, Run]:
        if not self.run.smoke or len(hosts) == len(self.run.hosts):
            part = subset(self.run, hosts)
            return self.evaluate(part), part
        if not self.smoke_passed:
            others = ", ".join(list(self.excluded)[:3]) or "the spares"
            part = subset(self.run, hosts, {"not_started": filled("it has to run again without {0}", others)})
            return self.evaluate(part), part
        part = subset(self.run, hosts, {})
        return _with_smoke(self.evaluate(part), self.report), part

    def _selection(self, report: Report, part: Run, writes_table: bool) -> SpareSelection:
        hosts = tuple(part.hosts)
        code, obstacles = self.rules.code(report), []
        if len(hosts) < len(self.run.hosts):
            obstacle = master_obstacle(self.run, hosts, self.master_host, self.excluded)
            obstacles += [obstacle] if obstacle else []
            if part.rank_table.text and not writes_table:
                obstacles.append("the rank table lists excluded hosts; expected a reduced table to be written")
        if code or obstacles:
            code = self.rules.code(self.report) or code or Exit.FAILED
        spare = tuple(host for host in self.remaining_hosts if host not in hosts)
        return SpareSelection(
            hosts=hosts,
            spares=spare,
            excluded=self._ordered(),
            need=self.need,
            code=code,
            report=report,
            run=part,
            obstacles=tuple(obstacles),
        )

    def _not_enough(self, line: str) -> SpareSelection:
        """Not enough: the whole run's verdict stands, and is never healthy."""
        return SpareSelection(
            hosts=self.remaining_hosts,
            excluded=self._ordered(),
            need=self.need,
            enough=False,
            code=self.rules.code(self.report) or Exit.FAILED,
            report=self.report,
            run=self.run,
            obstacles=(line,),
        )

    def _ordered(self) -> dict[str, tuple[str, ...]]:
        return {host: self.excluded[host] for host in self.run.hosts if host in self.excluded}


def _smoke_passed(run: Run, report: Report, rules: FailureRules) -> bool:
    """The smoke run was made with all hosts that answered, and found nothing: that holds for a part of them as well."""
    reached = {host for host, record in run.hosts.items() if not record.visit.failure}
    smoke = tuple(_restricted_to(outcome, reached) for outcome in report.outcomes if outcome.area == "smoke")
    return rules.code(msgspec.structs.replace(report, outcomes=smoke)) == Exit.HEALTHY


def _with_smoke(part: Report, full_report: Report) -> Report:
    """``part`` with the result of the smoke run of all hosts."""
    smoke = {
        outcome.check: _restricted_to(outcome, part.hosts)
        for outcome in full_report.outcomes
        if outcome.area == "smoke"
    }
    outcomes = tuple(smoke.get(outcome.check, outcome) for outcome in part.outcomes)
    return msgspec.structs.replace(part, outcomes=outcomes, smoke=full_report.smoke)


def _restricted_to(outcome: Outcome, hosts: Collection[str]) -> Outcome:
    kept: Callable[[Iterable[str]], list[str]] = lambda names: [name for name in names if not name or name in hosts]  # noqa: E731
    return msgspec.structs.replace(
        outcome,
        evaluated_hosts=tuple(kept(outcome.evaluated_hosts)),
        unknown={host: outcome.unknown[host] for host in kept(outcome.unknown)},
        skipped={host: outcome.skipped[host] for host in kept(outcome.skipped)},
    )


def _hosts(number: int) -> str:
    return "1 host is" if number == 1 else f"{number} hosts are"


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


def bad_hosts(
    report: Report,
    rules: FailureRules = FailureRules(),
    names: Mapping[str, str] | None = None,
    left_out: Callable[[Finding], Sequence[str]] = lambda finding: finding.hosts,
) -> dict[str, list[str]]:
    """The hosts that cannot be used, each with the failed checks; in inventory order.

    A host is bad when a finding that makes the run fail blames it, when a check crashed on it, when it gave no
    answer, and, unless what is unknown is forgiven, when anything on it is unknown that could make the run fail. A
    finding that blames two hosts makes both bad: which of them is wrong is not known. What blames no host makes none
    bad, and is not cured by leaving any out. ``names``: other names of hosts that findings may use, such as a rank
    table's server_ids. ``left_out``: the hosts of a finding that are bad.
    """
    checks_by_host = {**unevaluated_hosts(report, rules), **blamed_hosts(report, rules, names or {}, left_out)}
    return {host: checks_by_host[host] for host in report.hosts if host in checks_by_host}


def blamed_hosts(
    report: Report, rules: FailureRules, names: Mapping[str, str], left_out: Callable[[Finding], Sequence[str]]
) -> dict[str, list[str]]:
    """The checks that failed on each host of the report; ``names`` leads from other names to hosts."""
    checks_by_host: dict[str, list[str]] = {}
    for outcome in report.outcomes:
        counted = (finding for finding in outcome.findings if rules.counts_as_failure(outcome, finding))
        for name in dict.fromkeys(name for finding in counted for name in left_out(finding)):
            host = name if name in report.hosts else names.get(name, "")
            checks_by_host.setdefault(host, []).append(outcome.check)
    return {host: list(dict.fromkeys(checks)) for host, checks in checks_by_host.items() if host in report.hosts}


def _hosts_to_leave_out(finding: Finding, count: int, need: int, master: str) -> list[str]:
    """The hosts that a finding names; without those of a part that suffices with the rest of ``count`` hosts.

    Of a fleet that is cut the part stays that a job of ``need`` hosts can start on: the one of ``master``, or else the
    largest. One host for itself is no part to start on.
    """
    least = max(2, need - count + len(finding.hosts))
    parts = [part for part in finding.values.get(CUT_PARTS, ()) if len(part) >= least]
    kept = next((part for part in parts if master in part), parts[0] if parts else ())
    return [host for host in finding.hosts if host not in kept]


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


def master_host(run: Run) -> str:
    """The host that the job's MASTER_ADDR is, or the empty string: not given, not known, or more than one."""
    if not master_address(run):
        return ""
    facts, launch = FactCache(run.hosts), LaunchConfig.from_options(run.launch)
    return host_of_master(
        list(run.hosts), facts.fleet(HostNames), facts.fleet(Interfaces), launch, facts.fleet(MasterTrial)
    )


def master_address(run: Run) -> str:
    """The job's MASTER_ADDR; empty when it is not given, or means every host itself."""
    master_addr = LaunchConfig.from_options(run.launch).master_addr
    return "" if means_own_host(master_addr) else master_addr


def master_obstacle(run: Run, hosts: Collection[str], master: str, left_out: Collection[str]) -> str:
    """Why the job cannot start on ``hosts``: its master is not among them, or may not be. Empty when it is."""
    master_addr = master_address(run)
    if not master_addr or master in hosts:
        return ""
    expected = "expected MASTER_ADDR to be one of the remaining hosts"
    if not master:
        address = printable_excerpt(master_addr)
        return filled("MASTER_ADDR {0} is not a known host of the job, and hosts are excluded; {1}", address, expected)
    who = f"MASTER_ADDR {printable_excerpt(master_addr)}" + (f" is {master}, which" if master_addr != master else "")
    return f"{who} is {'excluded' if master in left_out else 'not needed'}; {expected}"

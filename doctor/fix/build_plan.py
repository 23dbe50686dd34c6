"""Builds a plan: findings, their playbooks, and the state that the steps will change. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from doctor import __version__
from doctor.collect.collector_request import CollectOptions
from doctor.collect.fanout import RecordCallback
from doctor.engine.check import Check
from doctor.engine.record import Run
from doctor.engine.result import Report
from doctor.engine.texts import filled
from doctor.engine.utc_time import utc_text
from doctor.environment.inventory import Inventory
from doctor.fix.apply import HostWork
from doctor.fix.inspect_host import HostExecutors, find_activity, inspect_host
from doctor.fix.plan import (
    MAX_PARALLEL_HOSTS,
    SCHEMA,
    FixPlan,
    HostInspection,
    HostPlan,
    PlanContext,
    PlaybookSummary,
    host_plan,
    planned_files,
)
from doctor.fix.remote_client import ConnectionLost
from doctor.fix.select import PlaybookChoice, Treatment, choose_playbooks, ready_steps
from doctor.fix.store import new_id
from doctor.fix.survival import applied_playbooks, boot_run, surviving
from doctor.remedy.playbook import Playbook
from doctor.session.examine import examine
from doctor.session.examine_options import ExamineOptions
from doctor.session.replay import Examination, replay
from doctor.transport import Transport
from doctor.transport.program import parallel_map


class FixContext(msgspec.Struct, frozen=True):
    """All that a plan is made from, but for the hosts' own answers."""

    inventory: Inventory
    checks: tuple[Check, ...]
    playbooks: tuple[Playbook, ...]
    options: ExamineOptions
    plan_context: PlanContext
    apply_policy: Callable[[Report], Report]
    """Applies the waivers."""
    catalog: tuple[Check, ...] = ()
    """All checks: run again after the steps, to find what these have turned red."""

    def examine_hosts(
        self,
        hosts: Sequence[str] = (),
        checks: Sequence[Check] = (),
        progress: RecordCallback = lambda host, record: None,
        after_reboot: bool = False,
    ) -> Examination:
        """Runs the checks on all hosts, or on some, with the names of all."""
        fleet = self.inventory
        if hosts:
            fleet = msgspec.structs.replace(fleet, hosts=tuple(hosts), fleet=fleet.fleet or fleet.hosts)
        return examine(
            fleet,
            checks or self.checks,
            msgspec.structs.replace(self.options, after_reboot=after_reboot),
            self.plan_context.environ,
            rank_table=self.plan_context.rank_table,
            progress=progress,
        )

    def evaluate_run(self, run: Run, checks: Sequence[Check]) -> Report:
        return self.apply_policy(replay(run, checks))


class PlannedFix(msgspec.Struct, frozen=True):
    """A plan with the data to apply it: its run, and the work on every host."""

    plan: FixPlan
    run: Run
    work_by_host: dict[str, HostWork]


def make_plan(fix_context: FixContext, run: Run, transport: Transport) -> PlannedFix:
    """Inspects every host that has a playbook, and makes a plan. Changes nothing."""
    report = fix_context.evaluate_run(run, fix_context.checks)
    causes = {check.name: tuple(check.follows_from) for check in fix_context.checks}
    choice = choose_playbooks(report, fix_context.playbooks, fix_context.plan_context.names, causes)
    hosts = [host for host in fix_context.inventory.hosts if host in choice.by_host]

    def work_of_host(host: str) -> HostWork:
        return _plan_host(host, choice.by_host[host], transport)

    work_by_host = dict(parallel_map(hosts, work_of_host, MAX_PARALLEL_HOSTS))
    work_by_host = _with_survival(fix_context, run, work_by_host, transport)
    return PlannedFix(
        _assemble_plan(fix_context, choice, {host: work_by_host[host] for host in hosts}, run), run, work_by_host
    )


def _with_survival(
    fix_context: FixContext, run: Run, work_by_host: Mapping[str, HostWork], transport: Transport
) -> dict[str, HostWork]:
    """Every plan says of each playbook whether it will survive a reboot of its host."""
    acting_hosts = {host: work for host, work in work_by_host.items() if work.host_plan.has_actions}
    treated = {treatment.check for work in acting_hosts.values() for treatment in work.treatments}
    checks = [check for check in fix_context.checks if check.name in treated]
    if not checks:
        return dict(work_by_host)
    options = fix_context.options
    ask = CollectOptions((), msgspec.to_builtins(run.probe_inputs), options.sudo)
    overlays = {
        host: {path: content.decode("utf-8", "replace") for path, content in work.planned_files.items()}
        for host, work in acting_hosts.items()
    }
    after = boot_run(run, transport, checks, ask, options.timeout, overlays)
    report = fix_context.evaluate_run(after, checks)
    results = dict(work_by_host)
    for host, work in acting_hosts.items():
        plan = work.host_plan
        playbooks = applied_playbooks(work.treatments, work.ready_steps, plan, plan.acting_playbooks)
        plan = msgspec.structs.replace(plan, survives=surviving(report, host, playbooks, planned=True))
        results[host] = msgspec.structs.replace(work, host_plan=plan)
    return results


def _plan_host(host: str, treatments: Sequence[Treatment], transport: Transport) -> HostWork:
    steps, executors = ready_steps(treatments, host), HostExecutors(transport, host)
    try:
        inspection = inspect_host(executors, steps)
        if not all(act.filled_step.manual for act in steps):
            inspection = msgspec.structs.replace(inspection, busy=find_activity(executors.most_privileged()))
    except ConnectionLost as why:
        inspection = HostInspection(failure=str(why))
    finally:
        executors.close()
    plan = host_plan(host, treatments, steps, inspection)
    return HostWork(plan, tuple(treatments), tuple(steps), planned_files(steps, inspection, plan))


def _assemble_plan(
    fix_context: FixContext, choice: PlaybookChoice, work_by_host: Mapping[str, HostWork], run: Run
) -> FixPlan:
    used = {
        treatment.playbook.name: treatment.playbook for work in work_by_host.values() for treatment in work.treatments
    }
    return FixPlan(
        SCHEMA,
        new_id(),
        utc_text(),
        __version__,
        fix_context.inventory.source,
        fix_context.inventory.hosts,
        fix_context.plan_context.names,
        tuple(PlaybookSummary.from_playbook(used[name]) for name in sorted(used)),
        tuple(work.host_plan for work in work_by_host.values()),
        choice.untreated,
        run.notes,
        fix_context.plan_context,
    )


def changed_hosts(saved: FixPlan, now: PlannedFix) -> dict[str, str]:
    """Hosts that were not reached now, or whose state differs from the plan, with the reason."""
    present = {plan.host: plan for plan in now.plan.host_plans}
    differences = {}
    for old in saved.plans_to_apply:
        new, record = present.get(old.host), now.run.hosts.get(old.host)
        if record is not None and record.visit.failure:
            differences[old.host] = filled("not reached: {0}", record.visit.text)
        elif new is None:
            differences[old.host] = "the planned findings no longer exist"
        elif new.failure:
            differences[old.host] = new.failure
        elif new.digest != old.digest:
            differences[old.host] = _describe_difference(old, new)
    return differences


def _describe_difference(old: HostPlan, new: HostPlan) -> str:
    if {(treated_finding.check, treated_finding.playbook) for treated_finding in old.treated} != {
        (treated_finding.check, treated_finding.playbook) for treated_finding in new.treated
    }:
        return "the findings differ from the planned ones"
    failed = next((why for name, why in new.left_out.items() if name not in old.left_out), "")
    if failed:
        return failed
    changed = next(
        (
            old_step.description
            for old_step, new_step in zip(old.steps, new.steps, strict=False)
            if old_step != new_step
        ),
        "",
    )
    return (
        filled("the state that “{0}” changes is different now", changed)
        if changed
        else "the state that the steps change is different now"
    )

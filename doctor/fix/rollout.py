"""Applies a plan: the first host alone, then the rest in batches, until a host fails verification.

A signal lets what is under way be finished, and nothing else is begun (`SignalGuard`).
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from types import FrameType

import msgspec

from doctor.engine.check import Check
from doctor.engine.interrupts import STOP_SIGNALS
from doctor.engine.record import Run
from doctor.facts.boot import compares_boot_facts
from doctor.fix.apply import HostResult, PlanApplier
from doctor.fix.build_plan import FixContext, PlannedFix
from doctor.fix.journal import Journal
from doctor.fix.plan import treated_checks
from doctor.fix.survival import Survival, applied_playbooks, surviving
from doctor.fix.verify import Verification, finding_keys, new_findings, verify
from doctor.transport import Transport
from doctor.transport.program import parallel_map


class RolloutResult(msgspec.Struct, frozen=True):
    """What became of an applied plan."""

    id: str
    host_results: tuple[HostResult, ...]
    verifications: tuple[Verification, ...]
    pending_hosts: tuple[str, ...]
    stopped: int = 0
    """The exit code of the interrupt that ended it."""
    excluded_hosts: tuple[str, ...] = ()
    """Hosts of the plan that were left out."""

    @property
    def code(self) -> int:
        """0 when the fixes of all hosts of the plan are verified, 12 when the rest is unknown, else 10."""
        if self.stopped:
            return self.stopped
        if self.pending_hosts or any(host_result.state != "applied" for host_result in self.host_results):
            unknown = any(verification.state == "unknown" for verification in self.verifications)
            red = any(verification.state in ("red", "new") for verification in self.verifications) or any(
                host_result.state != "applied" for host_result in self.host_results
            )
            return 12 if unknown and not red else 10
        states = {verification.state for verification in self.verifications}
        return 10 if self.excluded_hosts or states & {"red", "new", "waits"} else 12 if "unknown" in states else 0


Tell = Callable[[HostResult | Verification | Survival], None]


def apply(
    fix_context: FixContext,
    planned: PlannedFix,
    transport: Transport,
    journal: Journal,
    force: bool,
    batch: int,
    report_progress: Tell,
) -> RolloutResult:
    """The first host, then the rest in batches, each verified before the next; stops at the first failure."""
    with SignalGuard() as signal_guard:
        return _Rollout(
            fix_context,
            planned,
            PlanApplier(transport, journal, force, signal_guard.event),
            batch,
            report_progress,
            signal_guard,
        ).execute()


class _Rollout:
    def __init__(
        self,
        fix_context: FixContext,
        planned: PlannedFix,
        applier: PlanApplier,
        batch: int,
        report_progress: Tell,
        signal_guard: SignalGuard,
    ) -> None:
        self.fix_context, self.planned_fix, self.applier, self.report_progress, self.signal_guard = (
            fix_context,
            planned,
            applier,
            report_progress,
            signal_guard,
        )
        self.batch = batch
        self.hosts = [host_plan.host for host_plan in planned.plan.plans_to_apply]
        self.pending_hosts = list(self.hosts)
        self.run = planned.run
        self.baseline: set[tuple[str, str, str]] | None = None
        """The findings before the first step; None until they are read."""
        self.host_results: list[HostResult] = []
        self.verifications: dict[tuple[str, str], Verification] = {}
        self.verified_checks: dict[str, set[str]] = {}
        """The hosts on which a playbook was applied wholly, each with the checks to run again."""

    def execute(self) -> RolloutResult:
        if self.pending_hosts:
            self._read_baseline()
        while self.pending_hosts and self._should_continue():
            size = self.batch if any(host_result.state == "applied" for host_result in self.host_results) else 1
            changed_hosts = self._apply_batch(self.pending_hosts[:size])
            finished_hosts = {host_result.host for host_result in self.host_results}
            self.pending_hosts = [host for host in self.pending_hosts if host not in finished_hosts]
            if changed_hosts and not self.signal_guard.code:
                self._verify_hosts(changed_hosts)
        waiting = [verification.host for verification in self.verifications.values() if verification.state == "waits"]
        if waiting and not self.signal_guard.code:
            self._verify_hosts(waiting, last=True)
        if self.verified_checks and not self.signal_guard.code:
            self._find_new(list(self.verified_checks), self.fix_context.catalog, self.planned_fix.plan.hosts)
        plan = self.planned_fix.plan
        return RolloutResult(
            plan.id,
            tuple(self.host_results),
            tuple(self.verifications.values()),
            tuple(self.pending_hosts),
            self.signal_guard.code,
        )

    def _should_continue(self) -> bool:
        if self.signal_guard.code or any(
            host_result.state in ("refused", "stopped") for host_result in self.host_results
        ):
            return False
        return all(
            verification.state in ("green", "waits") or verification.unrelated
            for verification in self.verifications.values()
        )

    def _apply_batch(self, hosts: Sequence[str]) -> list[str]:
        """Returns the hosts on which a playbook was applied wholly."""
        works = [self.planned_fix.work_by_host[host] for host in hosts]
        changed_hosts = []
        for _, host_result in parallel_map(works, self.applier.apply_host, len(works), self.applier.stop_event):
            self.host_results.append(host_result)
            self.report_progress(host_result)
            if host_result.completed:
                plan = self.planned_fix.work_by_host[host_result.host].host_plan
                self.verified_checks[host_result.host] = treated_checks(plan, host_result.completed)
                changed_hosts.append(host_result.host)
        return changed_hosts

    def _verify_hosts(self, hosts: Sequence[str], last: bool = False) -> None:
        """Runs the checks of these hosts again, with the earlier records of all other hosts."""
        names = {host: self.verified_checks[host] for host in dict.fromkeys(hosts)}
        checks = [
            check
            for check in self.fix_context.checks
            if any(check.name in check_names for check_names in names.values())
        ]
        # What hosts see of each other is asked of all of them.
        needs_all_hosts = any(fact.needs for check in checks for fact in check.facts)
        examination = self.fix_context.examine_hosts(() if needs_all_hosts else list(names), checks)
        self._merge_run(examination.run)
        waiting = [] if last else self.hosts
        report = self.fix_context.evaluate_run(self.run, checks)
        treated = {
            (host, treatment.check): [other.finding for other in work.treatments if other.check == treatment.check]
            for host, work in self.planned_fix.work_by_host.items()
            for treatment in work.treatments
        }
        for verification in verify(report, names, self.verified_checks, waiting, treated):
            self._record(verification)
        if not last and not self.signal_guard.code:
            # Checks that compare hosts wait until all are applied.
            alone = [
                check
                for check in self.fix_context.catalog
                if check.per_host and not any(fact.needs for fact in check.facts)
            ]
            self._find_new(list(names), alone, list(names))
        if not self.signal_guard.code:
            self._judge_survival(list(names), checks)

    def _judge_survival(self, hosts: Sequence[str], checks: Sequence[Check]) -> None:
        """The same checks once more, on what the hosts load when they start."""
        examined = () if any(map(compares_boot_facts, checks)) else hosts
        self._merge_run(self.fix_context.examine_hosts(examined, checks, after_reboot=True).run)
        report = self.fix_context.evaluate_run(msgspec.structs.replace(self.run, after_reboot=True), checks)
        for place, result in enumerate(self.host_results):
            if result.host not in hosts or not result.completed:
                continue
            work = self.planned_fix.work_by_host[result.host]
            playbooks = applied_playbooks(work.treatments, work.ready_steps, work.host_plan, result.completed)
            survives = surviving(report, result.host, playbooks)
            self.host_results[place] = msgspec.structs.replace(result, survives=survives)
            self.report_progress(Survival(result.host, survives))

    def _record(self, verification: Verification) -> None:
        self.verifications[verification.host, verification.check] = verification
        self.applier.journal.record_verification(
            verification.host,
            " ".join(filter(None, (f"{verification.check}: {verification.state}", verification.reason))),
        )
        self.report_progress(verification)

    def _read_baseline(self) -> None:
        """What all checks find before the first step, also those that the plan was not made for."""
        catalog = self.fix_context.catalog
        if len(catalog) > len(self.fix_context.checks):
            self._merge_run(self.fix_context.examine_hosts((), catalog).run)
        self.baseline = finding_keys(self.fix_context.evaluate_run(self.run, catalog)) if catalog else None

    def _find_new(self, hosts: Sequence[str], checks: Sequence[Check], examined: Sequence[str]) -> None:
        """Reports the findings of these hosts that were not there before the first step."""
        if self.baseline is None or not checks:
            return
        self._merge_run(self.fix_context.examine_hosts(list(examined), checks).run)
        for verification in new_findings(self.fix_context.evaluate_run(self.run, checks), self.baseline, hosts):
            if (verification.host, verification.check) not in self.verifications:
                self._record(verification)

    def _merge_run(self, run: Run) -> None:
        """Takes over what was read now; of a host that was not reached the failure."""
        records = {
            host: msgspec.structs.replace(record, outputs={**self.run.hosts[host].outputs, **record.outputs})
            if not record.visit.failure and host in self.run.hosts
            else record
            for host, record in run.hosts.items()
        }
        self.run = msgspec.structs.replace(self.run, hosts={**self.run.hosts, **records})


class SignalGuard:
    """Within its ``with`` the first signal only sets ``event``, the second ends the program.

    Work under way can so be finished.
    """

    def __init__(self) -> None:
        self.event = threading.Event()
        self.code = 0
        """The exit code that the signal asks for; 0 while there was none."""

    def __enter__(self) -> SignalGuard:
        self._previous_handlers = {number: signal.signal(number, self._on_signal) for number in STOP_SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self.code:
            raise SystemExit(128 + number)
        self.code = 128 + number
        self.event.set()

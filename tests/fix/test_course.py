"""The first host alone, then the others in batches, and nothing more behind what is not proven."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from doctor.engine.fact import Visit
from doctor.engine.record import SCHEMA as RUN
from doctor.engine.record import HostRecord, Run
from doctor.engine.result import Finding, Report
from doctor.fix.apply import HostResult, HostWork
from doctor.fix.build_plan import PlannedFix
from doctor.fix.journal import Journal
from doctor.fix.plan import SCHEMA, FixPlan, HostPlan, PlanContext, StepPreview, TreatedFinding
from doctor.fix.rollout import RolloutResult, SignalGuard, _Rollout
from doctor.fix.verify import Verification
from doctor.session.replay import Examination
from tests.fix.books import outcome, reason, sample_finding

HOSTS = tuple(f"a{number}" for number in range(1, 7))
State = Literal["applied", "busy", "refused", "stopped"]


class Check:
    name = "short"
    facts = frozenset[Any]()
    needs = ()


class SimulatedHosts:
    """Hosts that are mended by being applied to, but for those that are said to be otherwise."""

    def __init__(
        self,
        states: Mapping[str, State] = {},
        completed: Mapping[str, tuple[str, ...]] = {},
        finding: Finding | None = None,
        unknown: str = "",
        stop_at: str = "",
    ) -> None:
        self.states, self.finding, self.unknown, self.stop_at = states, finding, unknown, stop_at
        self.completed = completed
        self.turns: list[list[str]] = []
        self.mended: set[str] = set()
        self.checks, self.plan_context = [Check()], PlanContext(hosts=HOSTS, source="")
        self.catalog: tuple[Any, ...] = ()
        self.stop_event = threading.Event()
        self.lock = threading.Lock()

    def apply_host(self, work: HostWork) -> HostResult:
        host = work.host_plan.host
        if host == self.stop_at:
            os.kill(os.getpid(), signal.SIGTERM)
            self.stop_event.wait(20)
        state = self.states.get(host, "applied")
        with self.lock:
            self.mended.update([host] if state == "applied" else [])
        completed = self.completed.get(host, ("mend",) if state == "applied" else ())
        return HostResult(host, state, reason="" if state == "applied" else "so it is", completed=completed)

    def examine_hosts(
        self, hosts: Sequence[str] = (), checks: Sequence[Any] = (), after_reboot: bool = False
    ) -> Examination:
        self.turns += [] if after_reboot else [sorted(hosts)]
        return Examination(self.run(hosts), Report("", HOSTS, ()))

    def run(self, hosts: Sequence[str]) -> Run:
        return Run(RUN, "", "", 0.0, {host: HostRecord(Visit()) for host in hosts})

    def evaluate_run(self, run: Run, checks: Sequence[Any]) -> Report:
        assert set(run.hosts) == set(HOSTS), "the others' records are there, for checks that compare"
        still = [sample_finding(host) for host in HOSTS if host not in self.mended]
        blamed = set(self.finding.hosts) if self.finding else set()
        if self.finding and (len(blamed) == 1 or not blamed <= self.mended):
            still.append(self.finding)
        unknown = {self.unknown: reason("it does not tell")} if self.unknown else {}
        return Report("", HOSTS, (outcome("short", *still, evaluated_hosts=HOSTS, unknown=unknown),))

    def go(self, folder: Path, batch: int = 3) -> RolloutResult:
        step = StepPreview("mend", "Set it", "run", "set", "unset")
        works = {
            host: HostWork(HostPlan(host, (TreatedFinding("short", "", "mend"),), (step,)), (), ()) for host in HOSTS
        }
        plans = tuple(work.host_plan for work in works.values())
        plan = FixPlan(SCHEMA, "id", "", "", "", HOSTS, (), (), plans)
        self.journal = Journal(folder)
        self.reported: list[HostResult | Verification] = []
        with SignalGuard() as halt:
            self.stop_event = halt.event
            planned = PlannedFix(plan, self.run(HOSTS), works)
            case: Any = self
            return _Rollout(case, planned, case, batch, self.reported.append, halt).execute()


def states(result: RolloutResult) -> dict[str, str]:
    return {host_result.host: host_result.state for host_result in result.host_results}


def test_the_canary_alone_then_batches_each_proven_before_the_next(tmp_path: Path) -> None:
    trial = SimulatedHosts()
    result = trial.go(tmp_path)
    assert trial.turns == [["a1"], ["a2", "a3", "a4"], ["a5", "a6"]]
    assert (result.code, result.pending_hosts) == (0, ())
    assert {verification.state for verification in result.verifications} == {"green"}


def test_a_canary_that_is_in_use_leaves_its_turn_to_the_next(tmp_path: Path) -> None:
    trial = SimulatedHosts({"a1": "busy", "a2": "busy"})
    result = trial.go(tmp_path)
    assert trial.turns == [["a3"], ["a4", "a5", "a6"]]
    assert (result.code, result.pending_hosts) == (10, ())


def test_a_host_that_is_not_proven_is_the_last(tmp_path: Path) -> None:
    trial = SimulatedHosts(finding=sample_finding("a1", template="still so"))
    result = trial.go(tmp_path)
    assert states(result) == {"a1": "applied"}
    assert (result.code, result.pending_hosts) == (10, HOSTS[1:])


def test_what_cannot_be_told_is_no_proof(tmp_path: Path) -> None:
    result = SimulatedHosts(unknown="a1").go(tmp_path)
    assert (states(result), result.code) == ({"a1": "applied"}, 12)
    assert [verification.state for verification in result.verifications] == ["unknown"]


def test_a_step_that_fails_ends_it_behind_its_batch(tmp_path: Path) -> None:
    trial = SimulatedHosts({"a3": "stopped"})
    result = trial.go(tmp_path)
    assert set(states(result)) == {"a1", "a2", "a3", "a4"}
    assert (result.code, result.pending_hosts) == (10, ("a5", "a6"))


def test_what_was_applied_wholly_is_proven_also_on_a_host_where_another_playbook_failed(tmp_path: Path) -> None:
    trial = SimulatedHosts({"a1": "stopped"}, completed={"a1": ("mend",)})
    result = trial.go(tmp_path)
    assert trial.turns == [["a1"]]
    assert [(verification.host, verification.check, verification.state) for verification in result.verifications] == [
        ("a1", "short", "red")
    ]
    assert (result.code, result.pending_hosts) == (10, HOSTS[1:]), "the failed host is the last all the same"


def test_a_finding_of_several_hosts_waits_for_the_last_of_them(tmp_path: Path) -> None:
    trial = SimulatedHosts(finding=sample_finding("a1", "a6", template="both have it"))
    result = trial.go(tmp_path)
    assert [entry.state for entry in trial.reported if isinstance(entry, Verification) and entry.host == "a1"] == [
        "waits",
        "green",
    ]
    assert result.code == 0


def test_and_is_red_when_one_of_them_was_left_alone(tmp_path: Path) -> None:
    result = SimulatedHosts({"a6": "busy"}, finding=sample_finding("a1", "a6")).go(tmp_path)
    assert {verification.host: verification.state for verification in result.verifications}["a1"] == "red"
    assert result.code == 10


def test_an_interrupt_ends_it_behind_the_batch_without_a_proof(tmp_path: Path) -> None:
    trial = SimulatedHosts(stop_at="a3")
    result = trial.go(tmp_path, batch=2)
    assert trial.turns == [["a1"]]
    assert set(states(result)) == {"a1", "a2", "a3"}
    assert (result.code, result.pending_hosts) == (143, ("a4", "a5", "a6"))


def test_the_proofs_are_in_the_journal(tmp_path: Path) -> None:
    trial = SimulatedHosts()
    trial.go(tmp_path)
    assert [entry.output for entry in trial.journal.entries() if entry.host == "a1"] == ["short: green"]

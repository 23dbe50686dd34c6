"""What the detector calls a trouble, whom it blames, and when it keeps silent."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.smoke.hang.detector import PEERS, Detector, Resend, joined_snapshots
from doctor.smoke.hang.state import AdaptiveLimits, RunState
from doctor.smoke.model import Collective, Failure, Layout, Snapshot
from doctor.smoke.programs.recorder_page import P2P_GROUP_BASE
from tests.examples import examples
from tests.smoke import simulation
from tests.smoke.simulation import Act, Simulation, faulty, fleet, layouts_of, leaves, wearied

CERTAIN = {
    simulation.shape: {"mismatch"},
    simulation.dtype: {"mismatch"},
    simulation.other_op: {"mismatch"},
    simulation.extra: {"mismatch"},
    simulation.skip: {"mismatch", "order", "left"},
    simulation.swap: {"mismatch", "order"},
}
"""Faults of calls. A call left out ends as whatever comes first: another one in its place, a circle, the loop's end."""
SIGNS = {
    simulation.kill: {"dead"},
    simulation.fail: {"dead"},
    simulation.quit_early: {"left"},
    simulation.stop: {"stopped"},
    simulation.freeze: {"frozen"},
    simulation.sleep: {"blocked"},
    simulation.spin: {"busy"},
    simulation.starve_input: {"input"},
}
LINES = st.tuples(st.sampled_from([0.0, 0.05, 0.2]), st.sampled_from([0.0, 0.1, 0.3]))
"""How late the lines of a host come, and what share of its looks is lost."""


# ---- whole runs, in virtual time


@st.composite
def runs(draw: st.DrawFn) -> tuple[int, list[Layout], int]:
    """World, layouts, seed."""
    world = draw(st.sampled_from([2, 4, 8]))
    names = draw(st.permutations(sorted(layouts_of(world))))
    chosen = [layouts_of(world)[name] for name in names[: draw(st.integers(1, 3))]]
    return world, chosen, draw(st.integers(0, 10**6))


@settings(max_examples=examples(60), deadline=None)
@given(run=runs(), lines=st.tuples(st.sampled_from([0.0, 0.2, 0.6]), st.sampled_from([0.0, 0.1, 0.5])))
def test_no_alarm_on_busy_hosts_with_late_and_lost_lines(
    run: tuple[int, list[Layout], int], lines: tuple[float, float]
) -> None:
    world, layouts, seed = run
    groups, programs = fleet(world, layouts, seed)
    tired = [wearied(program, Random(seed + rank), 0.5) for rank, program in enumerate(programs)]
    rng = Random(seed)
    transfer = rng.choice([0.002, 0.02, 0.12])
    sim = Simulation(world, groups, tired, rng, delay=lines[0], loss=lines[1], transfer=transfer)
    assert sim.watch(Detector(world), 300) is None
    assert all(rank.dead == "exit status 0" for rank in sim.ranks)


@settings(max_examples=examples(25), deadline=None)
@given(run=runs(), lines=LINES, data=st.data())
@pytest.mark.parametrize("fault", CERTAIN | SIGNS, ids=lambda fault: fault.__name__)
def test_names_the_rank_and_what_it_did(
    fault: simulation.Fault, run: tuple[int, list[Layout], int], lines: tuple[float, float], data: st.DataObject
) -> None:
    world, layouts, seed = run
    guilty = data.draw(st.integers(0, world - 1), "guilty")
    groups, programs = fleet(world, layouts, seed)
    others = [number for members, number in groups.numbers.items() if guilty in members]
    step, nth = data.draw(st.integers(1, 3), "step"), data.draw(st.integers(0, 30), "call")
    programs[guilty] = faulty(programs[guilty], fault, step, nth, others, Random(seed))
    sim = Simulation(world, groups, programs, Random(seed), delay=lines[0], loss=lines[1])
    trouble = sim.watch(Detector(world), 30)
    if harmless(trouble, sim, fault, others):
        return
    assert trouble is not None
    assert (trouble.kind, trouble.culprit_ranks) in [(kind, (guilty,)) for kind in (CERTAIN | SIGNS)[fault]]
    assert guilty in trouble.calls
    assert trouble.stage == "training" or fault is simulation.skip  # what was left out may be missed only later


def harmless(trouble: Failure | None, sim: Simulation, fault: simulation.Fault, others: list[int]) -> bool:
    """Where the fault could not be made, or, with a message nobody took, leaves only wrong values."""
    unmade = fault is simulation.swap and len(others) < 2
    return trouble is None and (unmade or fault is simulation.skip) and all(rank.state == "done" for rank in sim.ranks)


@pytest.mark.parametrize("layouts", [["pp"], ["pp", "dp", "pp"]])
@pytest.mark.parametrize("nth", [2, 3])
def test_a_message_left_out_in_the_last_step_is_missed_in_a_later_stage_or_layout(layouts: list[str], nth: int) -> None:
    """By then the rank makes the same calls as the other again: only its own steps tell whose fault it was."""
    chosen = [layouts_of(2)[name] for name in layouts]
    groups, programs = fleet(2, chosen, 0)
    programs[0] = faulty(programs[0], simulation.skip, 3, nth, [0], Random(0))
    trouble = Simulation(2, groups, programs, Random(0)).watch(Detector(2), 30)
    assert trouble is not None
    assert (trouble.kind, trouble.culprit_ranks) == ("mismatch", (0,))


@settings(max_examples=examples(25), deadline=None)
@given(run=runs(), lines=LINES, data=st.data())
def test_a_rank_that_leaves_the_loop(
    run: tuple[int, list[Layout], int], lines: tuple[float, float], data: st.DataObject
) -> None:
    world, layouts, seed = run
    guilty, step = data.draw(st.integers(0, world - 1)), data.draw(st.integers(2, 3))
    groups, programs = fleet(world, layouts, seed)
    programs[guilty] = leaves(programs[guilty], step)
    sim = Simulation(world, groups, programs, Random(seed), delay=lines[0], loss=lines[1])
    trouble = sim.watch(Detector(world), 30)
    assert trouble is not None
    assert (trouble.kind, trouble.culprit_ranks) == ("left", (guilty,))
    assert (trouble.stage, trouble.step) == ("training", step)


LIMITS = {"mismatch": 0.2, "order": 0.25, "left": 0.5, "dead": 0.5, "stopped": 1.15, "frozen": 1.15, "blocked": 1.2}


@pytest.mark.parametrize("fault", CERTAIN | SIGNS, ids=lambda fault: fault.__name__)
def test_soon_after_the_fault(fault: simulation.Fault) -> None:
    took = []
    for seed in range(20):
        groups, programs = fleet(8, [Layout(dp=2, tp=2, pp=2)], seed)
        guilty = seed % 8
        others = [number for members, number in groups.numbers.items() if guilty in members]
        programs[guilty] = faulty(programs[guilty], fault, 2, seed, others, Random(seed))
        sim = Simulation(8, groups, programs, Random(seed))
        trouble = sim.watch(Detector(8), 30, tick=0.02)
        if trouble is not None and sim.fault_at is not None:
            took.append((sim.now - sim.fault_at, LIMITS.get(trouble.kind, 1.2)))
    assert len(took) >= 15
    middle = sorted(seconds - limit for seconds, limit in took)[len(took) // 2]
    assert middle <= 0


@pytest.mark.parametrize("evidence", [False, True])
@pytest.mark.parametrize("name", ["dp", "tp", "pp", "dpxtp"])
def test_bytes_that_do_not_arrive(name: str, evidence: bool) -> None:
    """One link is silent from some moment on. With a socket that sends again and again it is found sooner."""
    groups, programs = fleet(4, [layouts_of(4)[name]], 3)
    cut = 3.0

    def silent(group: int, now: float) -> bool:
        return now > cut and {1, 3} <= set(divmod(group - simulation.CHANNELS, 4) if group >= 10**6 else members[group])

    members = {number: ranks for ranks, number in groups.numbers.items()}
    programs = [endless(groups, layouts_of(4)[name], rank) for rank in range(4)]
    sim = Simulation(4, groups, programs, Random(1), per_host=1, silent=silent)
    resends = [Resend(1, "d", 4096, 3)]
    detector = Detector(4, hosts="abcd")
    trouble = sim.watch(detector, 30, tick=0.02, evidence=lambda now: resends if evidence and now > cut + 0.4 else [])
    assert trouble is not None
    assert trouble.kind == "network"
    assert trouble.links == ((("b", "d"),) if evidence else ())
    assert trouble.certainty == ("evidence" if evidence else "timeout")
    assert {1, 3} & set(trouble.culprit_ranks)
    assert sim.now - cut < (0.8 if evidence else 3.5)


def endless(groups: simulation.Groups, layout: Layout, rank: int) -> Iterator[Act]:
    yield Act("stage", text="training")
    for step in range(10**6):
        yield Act("step", step)
        yield from simulation.one_step(groups, layout, rank, Random(step * 100 + rank), 0.01)


def test_512_ranks_at_20_looks_a_second() -> None:
    """The detector's own time stays far below the time that it watches, and it forgets what agreed."""
    layouts = [Layout(pp=2, dp=32, tp=8), Layout(dp=512)]
    for fault in (None, simulation.sleep):
        groups, programs = fleet(512, layouts, 7, steps=2)
        if fault:
            others = [number for members, number in groups.numbers.items() if 77 in members]
            programs[77] = faulty(programs[77], fault, 1, 5, others, Random(1))
        detector = Timed(512)
        trouble = Simulation(512, groups, programs, Random(1), per_host=8, delay=0.05).watch(detector, 60)
        assert (trouble.culprit_ranks if trouble else ()) == ((77,) if fault else ())
        assert trouble is None or len(trouble.waiting_ranks) == 511
        assert detector.seconds < 0.4 * detector.feeds * 0.05
        assert sum(map(len, detector._state.ledger.open.values())) < 600


class Timed(Detector):
    seconds, feeds = 0.0, 0

    def feed(self, *args: Any, **more: Any) -> Failure | None:
        began = time.process_time()
        trouble = super().feed(*args, **more)
        self.seconds += time.process_time() - began
        self.feeds += 1
        return trouble


# ---- single rules, on snapshots by hand


class Table:
    """A detector and the snapshots that it is fed: `put` changes what is seen of a rank."""

    def __init__(self, world: int, groups: Mapping[int, tuple[int, ...]] = {}, **more: Any) -> None:
        self.detector, self.now = Detector(world, **more), 100.0
        for number, ranks in groups.items():
            self.detector.learn_group(number, f"group{number}", ranks)
        self.snaps: dict[int, Snapshot] = {}
        self.reported: dict[str, Any] = {}
        for rank in range(world):
            self.put(rank)

    def put(self, rank: int, **fields: Any) -> None:
        """Ages grow by themselves as `wait` says; a new state is a new stamp."""
        last = self.snaps.get(rank)
        fields = {"state": "compute", "stage": "training", "stamp": last.stamp + 1 if last else 1, **fields}
        fields.setdefault("effective", fields.get("age", 0.0))
        entered = {**(last.entered if last else {}), **fields.pop("entered", {})}
        self.snaps[rank] = Snapshot(rank=rank, entered=entered, **fields)

    def call(self, rank: int, op: str, group: int = 0, seq: int = 1, **fields: Any) -> None:
        """The rank enters a collective."""
        form = {"dtype": "float32", "numel": 8, "root": -1, "step": 0, "stage": "training"}
        form = {name: fields.pop(name, value) for name, value in form.items()}
        calls = (Collective(group, seq, op, **form),)  # type: ignore[arg-type]
        self.put(
            rank, state="collective", group=group, seq=seq, op=op, calls=calls, entered={group: seq}, **form, **fields
        )

    def feed(self) -> Failure | None:
        return self.detector.feed(dict(self.snaps), self.now, **self.reported)

    def wait(self, seconds: float, starved: tuple[int, ...] = (), tick: float = 0.05) -> Failure | None:
        """Nothing changes for so long, but that the starved ranks wait for a CPU meanwhile."""
        end = self.now + seconds - 1e-9
        while self.now < end:
            if trouble := self.feed():
                return trouble
            self.now += tick
            for rank, snap in self.snaps.items():
                grown = 0.0 if rank in starved else tick
                self.snaps[rank] = msgspec.structs.replace(
                    snap, age=snap.age + tick, effective=snap.effective + grown, calls=()
                )
        return self.feed()


def kind(trouble: Failure | None) -> tuple[str, tuple[int, ...]] | None:
    return (trouble.kind, trouble.culprit_ranks) if trouble else None


@pytest.mark.parametrize("counted", [(), (1,), (0, 1)])
def test_a_rank_whose_counters_are_behind_its_state_does_not_wait_for_itself(counted: tuple[int, ...]) -> None:
    """An agent reads one after the other, and the rank may begin its next call in between."""
    table, group = Table(3), P2P_GROUP_BASE + 1
    for rank in (0, 1):
        entered = {group: 1} if rank in counted else {}
        table.put(rank, state="collective", group=group, seq=1, op="all_to_all", stage="pairs", entered=entered)
    assert table.wait(0.5) is None


class TestMismatch:
    @pytest.mark.parametrize(("stage", "culprits"), [("training", (1,)), ("soak", (0, 1))])
    def test_a_call_that_is_new_is_wrong_only_where_all_steps_are_alike(
        self, stage: str, culprits: tuple[int, ...]
    ) -> None:
        """In a user's program, the other one may have left it out."""
        table = Table(2)
        for step in range(3):
            for rank in range(2):
                table.call(rank, "all_reduce", seq=step + 1, step=step, stage=stage)
            table.wait(0.1)
        table.call(1, "all_reduce", seq=4, numel=3, step=3, stage=stage)
        table.call(0, "all_reduce", seq=4, step=3, stage=stage)
        assert kind(table.wait(1.0)) == ("mismatch", culprits)

    def test_of_three_the_odd_one(self) -> None:
        table = Table(3)
        for rank, numel in enumerate((8, 9, 8)):
            table.call(rank, "all_reduce", numel=numel)
        trouble = table.feed()
        assert kind(trouble) == ("mismatch", (1,))
        assert trouble is not None
        assert trouble.waiting_ranks == (0, 2)
        assert trouble.calls[0] == "all_reduce #1 (8 x float32, group world; step 0)"
        assert trouble.calls[1] == "all_reduce #1 (9 x float32, group world; step 0)"
        assert (trouble.op, trouble.numel, trouble.group, trouble.seq) == ("all_reduce", 8, "world", 1)

    @pytest.mark.parametrize("field", [{"dtype": "float64"}, {"op": "all_gather"}, {"root": 1}, {"step": 5}])
    def test_whatever_differs(self, field: dict[str, Any]) -> None:
        table = Table(3)
        for rank in range(3):
            table.call(rank, **{"op": "all_reduce", "root": 0, **(field if rank == 2 else {})})
        assert kind(table.feed()) == ("mismatch", (2,))

    def test_of_two_the_one_that_departs_from_its_own_step_before(self) -> None:
        table = Table(2)
        for step in range(2):
            for rank in range(2):
                table.call(rank, "all_reduce", seq=step + 1, step=step, numel=9 if (rank, step) == (1, 1) else 8)
            trouble = table.feed()
        assert kind(trouble) == ("mismatch", (1,))
        assert trouble is not None
        assert trouble.evidence == ("Rank 1 departs from its own previous step; the others do as before.",)

    def test_also_when_it_has_gone_on_since(self) -> None:
        """A step was left out; the next call went into its place, and the one after it is the first to differ."""
        table = Table(2)
        for seq, (mine, other) in enumerate([(0, 0), (2, 1), (3, 2)], 1):
            table.call(0, "all_reduce", seq=seq, step=mine)
            if seq < 3:
                table.call(1, "all_reduce", seq=seq, step=other)
            trouble = table.feed()
        assert kind(trouble) == ("mismatch", (0,))

    def test_the_end_of_the_stage_is_no_departure(self) -> None:
        table = Table(2, {1: (0, 1)})
        for step in range(3):
            for rank in range(2):
                table.call(rank, "all_reduce", group=1, seq=step + 1, step=step)
        table.call(0, "barrier", step=2, dtype="", numel=0)
        assert table.feed() is None
        assert not table.detector._state.traces[0].deviates()

    def test_of_two_the_one_that_no_other_group_acts_like(self) -> None:
        table = Table(4, {1: (0, 1), 2: (2, 3)})
        for rank, numel in enumerate((9, 8, 8, 8)):
            table.call(rank, "all_reduce", group=1 + rank // 2, numel=numel)
        assert kind(table.feed()) == ("mismatch", (0,))

    def test_of_two_both_when_nothing_tells_them_apart(self) -> None:
        table = Table(2)
        table.call(0, "all_reduce", numel=8)
        table.call(1, "all_reduce", numel=9)
        trouble = table.feed()
        assert kind(trouble) == ("mismatch", (0, 1))
        assert trouble is not None
        assert trouble.evidence == ("Ambiguous: either side may be the wrong one.",)

    def test_waits_a_moment_for_the_others_of_the_group(self) -> None:
        table = Table(4)
        table.call(0, "all_reduce", numel=9)
        table.call(1, "all_reduce", numel=8)
        assert table.wait(0.2) is None
        table.call(2, "all_reduce", numel=8)
        table.call(3, "all_reduce", numel=8)
        assert kind(table.feed()) == ("mismatch", (0,))

    def test_and_longer_for_those_that_wait_for_a_cpu(self) -> None:
        table = Table(4)
        table.call(0, "all_reduce", numel=9)
        table.call(1, "all_reduce", numel=8)
        assert table.wait(2.0, starved=(2, 3)) is None
        table.call(2, "all_reduce", numel=8)
        assert table.wait(0.5, starved=(3,)) is None
        table.call(3, "all_reduce", numel=8)
        assert kind(table.feed()) == ("mismatch", (0,))

    def test_but_not_for_one_that_is_stuck(self) -> None:
        table = Table(4)
        for rank, numel in enumerate((8, 9, 8)):
            table.call(rank, "all_reduce", numel=numel)
        assert kind(table.wait(0.35)) == ("mismatch", (1,))

    def test_explains_the_deaths_that_it_causes(self) -> None:
        table = Table(3)
        for rank, numel in enumerate((8, 9, 8)):
            table.call(rank, "all_reduce", numel=numel, dead="signal 6" if rank != 1 else "", process="X")
        assert kind(table.feed()) == ("mismatch", (1,))

    def test_send_and_recv_belong_together(self) -> None:
        table = Table(2)
        channel = 10**6 + 0 * 2 + 1
        table.call(0, "send", channel, root=1)
        table.call(1, "recv", channel, root=0)
        assert table.feed() is None
        table.call(0, "send", channel, seq=2, root=1)
        table.call(1, "recv", channel, seq=2, root=0, numel=9)
        trouble = table.feed()
        assert trouble is not None
        assert (trouble.kind, trouble.group) == ("mismatch", "p2p 0>1")
        assert trouble.calls[1] == "recv #2 (9 x float32, from rank 0; step 0)"

    def test_the_calls_of_a_snapshot_are_read_once(self) -> None:
        table = Table(2)
        table.call(0, "all_reduce")
        for _ in range(3):
            assert table.feed() is None
        assert len(table.detector._state.traces[0].steps[0].calls) == 1

    def test_two_messages_between_two_feeds_are_joined(self) -> None:
        table = Table(2)
        table.call(0, "all_reduce", numel=9)
        first = table.snaps[0]
        table.call(0, "all_reduce", seq=2)
        table.snaps[0] = joined_snapshots(first, table.snaps[0], unread=True)
        table.call(1, "all_reduce", numel=8)
        assert kind(table.feed()) == ("mismatch", (0, 1))

    def test_of_a_group_that_is_told_of_late(self) -> None:
        table = Table(3)
        for rank, numel in enumerate((8, 9, 8)):
            table.call(rank, "all_reduce", group=1, numel=numel)
        assert table.feed() is None
        table.detector.learn_group(1, "dp", (0, 1, 2))
        assert kind(table.feed()) == ("mismatch", (1,))


class TestDeath:
    def test_the_cause_is_who_did_not_die_of_another(self) -> None:
        table = Table(3)
        table.call(0, "all_reduce", dead="exit status 13", error="Connection closed by peer", secondary=True)
        table.put(1, dead="signal 9", process="X", oom=True)
        table.call(2, "all_reduce", age=0.1)
        assert table.wait(0.3) is None
        trouble = table.wait(0.2)
        assert trouble is not None
        assert kind(trouble) == ("dead", (1,))
        assert trouble.waiting_ranks == (0, 2)
        assert trouble.text == "signal 9"
        assert trouble.evidence == ("Rank 1 was killed for memory.",)

    def test_a_signal_that_was_not_for_memory_is_told_from_one_that_is_not_known(self) -> None:
        for oom, told in ((False, True), (None, False)):
            table = Table(2)
            table.put(1, dead="signal 9", process="X", oom=oom)
            table.call(0, "all_reduce", age=0.1)
            assert table.wait(0.3) is None
            trouble = table.wait(0.2)
            assert trouble is not None and kind(trouble) == ("dead", (1,))
            assert any("another process sent it" in line for line in trouble.evidence) is told

    def test_who_died_waiting_for_a_dead_one_is_no_cause(self) -> None:
        table = Table(2)
        table.call(0, "all_reduce", dead="exit status 13", error="RuntimeError: something unheard of")
        table.put(1, dead="exit status 13", error="ValueError: bad batch")
        trouble = table.wait(0.4)
        assert kind(trouble) == ("dead", (1,))
        assert trouble is not None
        assert trouble.text == "exit status 13: ValueError: bad batch"

    def test_an_abort_is_no_cause_where_another_is_known(self) -> None:
        table = Table(3)
        table.put(0, dead="signal 6")
        table.put(2, dead="signal 11")
        assert kind(table.wait(0.4)) == ("dead", (2,))

    def test_errors_that_follow_from_nobodys_end_are_the_networks(self) -> None:
        table = Table(2)
        table.call(0, "all_reduce", dead="exit status 13", error="Connection reset by peer", secondary=True)
        table.call(1, "all_reduce", age=0.1)
        assert table.wait(0.9) is None
        assert kind(table.wait(0.2)) == ("network", ())

    def test_who_gave_up_waiting_for_ranks_to_join_is_no_culprit(self) -> None:
        table = Table(2)
        error = "wait timeout after 60000ms, keys: /doctor/0//cpu//0/1"
        table.put(0, state="start", stage="rendezvous", dead="exit status 13", error=error, secondary=True)
        trouble = table.wait(1.4)
        assert trouble is not None
        assert (kind(trouble), trouble.certainty) == (("never-joined", ()), "timeout")

    def test_who_ends_well_before_the_others_has_left(self) -> None:
        table = Table(2)
        table.put(0, dead="exit status 0")
        table.call(1, "all_reduce", dead="exit status 13", secondary=True)
        assert kind(table.wait(0.4)) == ("left", (0,))

    def test_ends_in_the_teardown_are_none(self) -> None:
        table = Table(2)
        table.put(0, state="done", stage="teardown", dead="exit status 0")
        table.call(1, "barrier", stage="teardown", dead="exit status 13", secondary=True)
        assert table.wait(3) is None

    @pytest.mark.parametrize(("stage", "expected"), [("start", "not-started"), ("rendezvous", "never-joined")])
    def test_an_error_before_the_ranks_have_met(self, stage: str, expected: str) -> None:
        table = Table(2)
        table.put(1, state="start", stage=stage, dead="exit status 13", error="ImportError: no torch")
        assert kind(table.wait(0.4)) == (expected, (1,))


class TestStopped:
    @pytest.mark.parametrize(("letter", "expected"), [("T", "stopped"), ("t", "stopped"), ("F", "frozen")])
    def test_after_a_second(self, letter: str, expected: str) -> None:
        table = Table(2)
        table.put(1, process=letter)
        assert table.wait(0.9) is None
        assert kind(table.wait(0.2)) == (expected, (1,))

    def test_a_rank_that_has_waited_for_long_may_pause_for_a_moment_too(self) -> None:
        table = Table(2)
        table.call(0, "all_reduce")
        table.call(1, "all_reduce")
        assert table.wait(0.8) is None
        table.snaps[0] = msgspec.structs.replace(table.snaps[0], process="T")
        assert table.wait(0.5) is None
        table.snaps[0] = msgspec.structs.replace(table.snaps[0], process="S")
        assert table.wait(0.1) is None

    def test_one_that_is_stopped_within_a_collective_is_named_when_the_others_give_up(self) -> None:
        table = Table(3, floor=30.0)
        for rank in range(3):
            table.call(rank, "all_reduce")
        table.snaps[1] = msgspec.structs.replace(table.snaps[1], process="T")
        assert table.wait(20.0) is None, "it may go on"
        assert table.detector.pauses(2.0).keys() == {1}
        for rank in (0, 2):
            table.put(rank, dead="exit status 1", state="collective", secondary=True, error="Timed out waiting 9ms")
        assert kind(table.wait(1.5)) == ("stopped", (1,))

    def test_all_that_are_stopped_at_once(self) -> None:
        table = Table(4)
        table.put(1, process="F")
        table.put(2, process="F")
        assert kind(table.wait(1.2)) == ("frozen", (1, 2))


class TestCircle:
    def test_two_that_wait_for_each_other(self) -> None:
        table = Table(2, {1: (0, 1), 2: (0, 1)})
        table.call(0, "all_reduce", group=1)
        table.call(1, "all_reduce", group=2)
        trouble = table.wait(0.2)
        assert kind(trouble) == ("order", (0, 1))
        assert trouble is not None
        assert trouble.certainty == "certain"
        assert trouble.calls[1] == "all_reduce #1 (8 x float32, group group2; step 0)"

    def test_a_sender_may_get_out_by_itself_and_has_more_time(self) -> None:
        table = Table(2)
        table.call(0, "send", 10**6 + 1, root=1)
        table.call(1, "send", 10**6 + 2, root=0)
        assert table.wait(0.4) is None
        assert kind(table.wait(0.3)) == ("order", (0, 1))

    def test_who_leaves_a_new_collective_out_that_most_ranks_enter_together(self) -> None:
        table = Table(4, {1: (0, 1), 2: (2, 3)})
        for step in range(3):
            for rank in range(4):
                table.call(rank, "all_gather", group=1 + rank // 2, seq=step + 1, step=step)
            table.wait(0.2)
            for rank in range(4):
                table.put(rank, state="compute", step=step + 1)
        for rank in (0, 1, 2):
            table.call(rank, "all_reduce", step=3)
        table.call(3, "all_gather", group=2, seq=4, step=3)
        assert kind(table.wait(0.2)) == ("order", (3,))

    def test_between_two_groups_of_the_same_ranks_the_majority_decides(self) -> None:
        table = Table(3, {1: (0, 1, 2), 2: (0, 1, 2)})
        for rank in range(3):
            table.call(rank, "all_reduce", group=1 + (rank == 1))
        assert kind(table.wait(0.2)) == ("order", (1,))

    def test_three_in_a_ring(self) -> None:
        table = Table(3, {1: (0, 1), 2: (1, 2), 3: (0, 2)})
        for rank, group in enumerate((1, 2, 3)):
            table.call(rank, "all_reduce", group=group)
        assert kind(table.wait(0.2)) == ("order", (0, 1, 2))


class TestLeft:
    @pytest.mark.parametrize(("stage", "last"), [("training", 16), ("soak", 16), ("soak", 2)])
    def test_who_leaves_early_is_named_also_where_steps_differ(self, stage: str, last: int) -> None:
        table = Table(2)
        sizes = [(8, 16), (16, 8), (4, 16, 8)]  # buckets in another order, then an evaluation before the step
        for rank in range(2):
            seq = 0
            for step, calls in enumerate(sizes):
                for numel in calls:
                    seq += 1
                    table.call(rank, "all_reduce", seq=seq, numel=numel, step=step, stage=stage)
                    table.wait(0.05)
                table.put(rank, state="compute", step=step + 1)
        table.put(1, state="done", dead="exit status 0")
        table.call(0, "all_reduce", seq=8, numel=last, step=3, stage=stage)
        assert kind(table.wait(1.5)) == ("left", (1,))

    def test_done_while_another_waits(self) -> None:
        table = Table(2)
        table.put(0, state="done")
        table.call(1, "all_reduce")
        assert kind(table.wait(0.5)) == ("left", (0,))

    def test_where_most_are_done_the_one_that_goes_on_is_wrong(self) -> None:
        table = Table(4)
        for rank in (0, 1, 3):
            table.put(rank, state="done")
        table.call(2, "all_reduce")
        assert kind(table.wait(0.5)) == ("mismatch", (2,))


class TestAbsent:
    @pytest.mark.parametrize(
        ("state", "cpu", "expected"),
        [("compute", 0.0, "blocked"), ("compute", 1.0, "busy"), ("input", 0.0, "input"), ("input", 1.0, "input")],
    )
    def test_by_what_it_does_instead(self, state: str, cpu: float, expected: str) -> None:
        table = Table(3)
        table.call(0, "all_reduce")
        table.call(1, "all_reduce")
        table.put(2, state=state, cpu=cpu)
        assert table.wait(0.95) is None
        trouble = table.wait(0.2)
        assert kind(trouble) == (expected, (2,))
        assert trouble is not None
        assert (trouble.certainty, trouble.limit) == ("timeout", 1.0)
        assert (trouble.op, trouble.seq, trouble.waiting_ranks) == ("all_reduce", 1, (0, 1))
        assert trouble.calls[2] == "no collective, before its first"

    @pytest.mark.parametrize(("stage", "state"), [("loader", "input"), ("training", "compute"), ("soak", "compute")])
    def test_a_late_rank_is_waited_for_as_a_job_does(self, stage: str, state: str) -> None:
        table = Table(2, floor=30.0)
        table.call(0, "barrier", stage=stage)
        table.put(1, state=state, stage=stage)
        assert table.wait(29.0, tick=0.5) is None
        assert kind(table.wait(2.0)) == ("input" if state == "input" else "blocked", (1,))

    def test_nobody_blames_the_rank_that_another_waits_for_in_turn(self) -> None:
        """0 waits for 1, which waits for 2."""
        table = Table(3, {1: (0, 1), 2: (1, 2)})
        table.call(0, "all_reduce", group=1)
        table.call(1, "all_reduce", group=2)
        assert kind(table.wait(1.2)) == ("blocked", (2,))

    def test_time_without_a_cpu_does_not_count(self) -> None:
        table = Table(2)
        table.call(0, "all_reduce")
        assert table.wait(9.0, starved=(1,)) is None

    def test_a_phase_that_took_long_before_may_do_so_again(self) -> None:
        table = Table(2)
        table.call(0, "all_reduce", step=0)
        table.call(1, "all_reduce", step=0)
        table.feed()
        teach(table, 1, 0.3)
        table.call(0, "all_reduce", seq=3, step=1)
        table.put(1, step=1)
        assert table.wait(2.9) is None
        trouble = table.wait(0.3)
        assert trouble is not None
        assert 2.9 < trouble.limit <= 3.05

    def test_but_the_first_step_teaches_nothing(self) -> None:
        table = Table(2)
        teach(table, 0, 0.3)
        table.call(0, "all_reduce", seq=2, step=1)
        table.put(1, step=1)
        assert kind(table.wait(1.2)) == ("blocked", (1,))

    def test_nor_does_another_stage(self) -> None:
        table = Table(2)
        table.call(0, "all_reduce", step=0)
        table.call(1, "all_reduce", step=0)
        table.feed()
        teach(table, 1, 0.3)
        table.call(0, "all_reduce", seq=3, stage="learning")
        table.put(1, stage="learning")
        assert kind(table.wait(1.2)) == ("blocked", (1,))

    def test_what_took_the_waiting_ones_long_may_take_the_other_as_long(self) -> None:
        """As an import in the middle of a run, on all ranks."""
        table = Table(2)
        assert table.wait(1.2) is None
        table.call(0, "all_reduce", stage="native")
        assert table.wait(8.0) is None

    def test_a_warmup_is_allowed_for_in_the_first_step(self) -> None:
        table = Table(2, warmup=5.0)
        table.call(0, "all_reduce")
        assert table.wait(4.8) is None
        assert kind(table.wait(0.4)) == ("blocked", (1,))

    def test_what_we_are_late_is_added(self) -> None:
        table = Table(2)
        table.reported = {"late": 2.0}
        table.call(0, "all_reduce")
        assert table.wait(2.9) is None
        assert kind(table.wait(0.2)) == ("blocked", (1,))

    def test_ranks_that_import_are_not_judged(self) -> None:
        table = Table(2)
        table.put(0, state="start", stage="start")
        table.put(1, state="compute", stage="rendezvous")
        assert table.wait(20) is None

    def test_nor_is_one_that_others_in_the_next_stage_wait_for_no_longer_than_normal(self) -> None:
        table = Table(2)
        table.call(0, "barrier", stage="training", step=3)
        table.put(1, stage="training", step=3)
        assert table.wait(0.9) is None

    def test_nor_one_that_was_never_heard_of(self) -> None:
        table = Table(2)
        del table.snaps[1]
        table.call(0, "all_reduce")
        assert table.wait(20) is None

    def test_nor_one_whose_host_says_nothing(self) -> None:
        table = Table(2)
        table.call(0, "all_reduce")
        old = table.snaps[1]
        for _ in range(100):
            table.now += 0.05
            table.snaps[0] = msgspec.structs.replace(table.snaps[0], age=table.snaps[0].age + 0.05, calls=())
            table.snaps[1] = old
            assert table.feed() is None

    def test_the_last_that_is_not_done(self) -> None:
        table = Table(2)
        table.put(0, state="done")
        assert kind(table.wait(1.2)) == ("blocked", (1,))

    def test_a_rank_that_is_alone_may_compute_for_as_long_as_it_likes(self) -> None:
        table = Table(1)
        assert table.wait(60.0) is None

    def test_all_of_them_in_their_data_loaders(self) -> None:
        table = Table(2, floor=10.0)
        table.put(0, state="input")
        table.put(1, state="input")
        assert table.wait(9.0) is None
        assert kind(table.wait(1.2)) == ("input", (0, 1))


def teach(table: Table, step: int, seconds: float) -> None:
    """Rank 1 computes for so long in this step, and joins rank 0 then, and both go on."""
    table.put(1, step=step)
    assert table.wait(seconds) is None
    for rank in range(2):
        table.call(rank, "all_reduce", seq=step + 1, step=step)
    table.feed()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"process": "S", "waits_for": "hrtimer_nanosleep"}, "blocked"),
        ({"cpu": 30.0}, "busy"),
        ({"process": "S", "waits_for": "futex_do_wait"}, "blocked"),
        ({"process": "S", "waits_for": "pipe_read"}, "blocked"),
        ({"process": "D", "waits_for": "rpc_wait_bit_killable"}, "blocked"),
        ({"process": "T"}, "stopped"),
        ({"process": "F"}, "frozen"),
    ],
)
def test_who_is_late_has_one_limit_whatever_it_waits_for(fields: dict[str, Any], expected: str) -> None:
    table = Table(2, floor=5.0)
    for step in (1, 2):
        table.call(0, "all_reduce", seq=step, step=step)
        table.put(1, step=step, **fields)
        assert table.wait(4.8) is None
        if step == 1:
            assert list(table.detector.pauses(2.0)) == [1]
            table.call(1, "all_reduce", seq=1, step=1)
            assert table.wait(0.1) is None
    assert kind(table.wait(0.4)) == (expected, (1,))


class TestNetwork:
    def test_all_are_in_and_none_gets_out(self) -> None:
        table = Table(2)
        table.call(0, "all_reduce")
        table.call(1, "all_reduce")
        assert table.wait(2.9) is None  # a pause within the call is no fault
        trouble = table.wait(0.3)
        assert kind(trouble) == ("network", (0, 1))
        assert trouble is not None
        assert (trouble.certainty, trouble.limit, trouble.links) == ("timeout", 3.0, ())

    def test_what_nothing_but_time_speaks_for_has_more_of_it_once(self) -> None:
        table = Table(2, floor=30.0, hosts=("h0", "h1"))
        table.call(0, "all_reduce")
        table.call(1, "all_reduce")
        trouble = table.wait(3.2)
        assert trouble is not None and table.detector.wait_on(trouble)
        assert table.wait(26.5) is None
        trouble = table.wait(1.0)
        assert kind(trouble) == ("network", (0, 1)) and trouble is not None and trouble.limit == 30.0
        assert not table.detector.wait_on(trouble)
        table.reported = {"evidence": [Resend(0, "h1", 4096, 3)]}  # which takes no time
        assert kind(table.feed()) == ("network", (0,))

    def test_another_call_has_its_own_time(self) -> None:
        table = Table(2, floor=30.0)
        for seq in (1, 2):
            for rank in range(2):
                table.call(rank, "all_reduce", seq=seq, step=seq)
            trouble = table.wait(3.2)
            assert trouble is not None and table.detector.wait_on(trouble)
            assert table.wait(0.5) is None

    @pytest.mark.parametrize(
        ("op", "out", "finished"), [("broadcast", 0, (0,)), ("broadcast", 1, ()), ("barrier", 1, (1,))]
    )
    def test_who_is_out_of_it_of_a_broadcast_its_root_alone(self, op: str, out: int, finished: tuple[int, ...]) -> None:
        """A broadcast may reach one rank and not the next; that its root has gone on counts where it reached none."""
        table = Table(3)
        for rank in range(3):
            table.call(rank, op, root=0 if op == "broadcast" else -1)
        assert table.wait(0.5) is None
        table.call(out, "all_reduce", seq=2)
        trouble = table.wait(4.0)
        assert trouble is not None and trouble.op == op
        assert table.detector.finished == finished

    def test_sooner_with_a_socket_that_sends_again(self) -> None:
        table = Table(2, hosts=("h0", "h1"))
        table.call(0, "all_reduce")
        table.call(1, "all_reduce")
        assert table.wait(0.45) is None
        table.reported = {"evidence": [Resend(0, "h1", 4096, 3)]}
        trouble = table.wait(0.2)
        assert kind(trouble) == ("network", (0,))
        assert trouble is not None
        assert (trouble.certainty, trouble.links) == ("evidence", (("h0", "h1"),))
        assert trouble.evidence == ("Rank 0 has 4096 bytes on the way to h1 that were sent 4 times.",)

    def test_a_single_resend_proves_nothing(self) -> None:
        table = Table(2)
        table.call(0, "all_reduce")
        table.call(1, "all_reduce")
        table.reported = {"evidence": [Resend(0, "h1", 4096, 1), Resend(1, "h0", 0, 5)]}
        assert table.wait(1.4) is None

    def test_the_time_counts_from_when_the_last_one_came_in(self) -> None:
        """The root of a broadcast comes last and goes on at once."""
        table = Table(2)
        table.call(1, "broadcast", root=0)
        assert table.wait(0.9) is None
        table.call(0, "broadcast", root=0)
        table.put(0)
        table.snaps[0] = msgspec.structs.replace(table.snaps[0], entered={0: 1})
        assert table.wait(2.9) is None
        assert kind(table.wait(0.3)) == ("network", (1,))

    def test_a_transfer_that_took_long_before_may_do_so_again(self) -> None:
        table = Table(2)
        for seq in (1, 2):
            for rank in range(2):
                table.call(rank, "all_reduce", seq=seq, step=seq)
            assert table.wait(0.4) is None
        for rank in range(2):
            table.call(rank, "all_reduce", seq=3, step=3)
        assert table.wait(3.0) is None
        assert kind(table.wait(1.5)) == ("network", (0, 1))

    def test_a_member_that_is_starved_of_cpu_is_no_network(self) -> None:
        table = Table(2)
        table.call(0, "all_reduce")
        table.call(1, "all_reduce")
        assert table.wait(9.0, starved=(1,)) is None


def in_collectives(places: Mapping[int, int]) -> RunState:
    """``places``: by rank, the group of the first collective of its step, in which it waits."""
    state = RunState(len(places), AdaptiveLimits(1.0, 1.0, 10.0, 1.0))
    state.groups |= {1: ("rows", (0, 2)), 2: ("columns", (1, 3)), 3: ("others", (4, 5))}
    ops = {1: "all_reduce", 2: "broadcast", 3: "all_reduce"}
    state.update(
        {
            rank: Snapshot(
                rank=rank,
                stamp=1,
                state="collective",
                stage="training",
                step=1,
                group=group,
                seq=1,
                op=ops[group],
                entered={group: 1},
                calls=(Collective(group, 1, ops[group], "float32", 8, -1, 1, "training"),),
            )
            for rank, group in places.items()
        },
        1.0,
    )
    return state


def test_who_waits_together_with_one_side_of_a_dispute_is_no_witness_for_it() -> None:
    """It may have no other way on: only ranks of other collectives show which side calls what is usual."""
    assert in_collectives({0: 1, 1: 2, 2: 1}).isolated_ranks([0, 1]) == []
    assert in_collectives({0: 1, 1: 2, 2: 1, 3: 2}).isolated_ranks([0, 1]) == []
    assert in_collectives({0: 1, 1: 2, 2: 1, 3: 2, 4: 3, 5: 3}).isolated_ranks([0, 1]) == [1]


def test_pairs_that_call_in_the_same_place_of_their_own_are_witnesses_whatever_came_before() -> None:
    """One rank of five rests in each round of pairs, so that the calls before differ."""
    table = Table(5)
    for rank in (0, 1):
        table.call(rank, "broadcast", seq=9, stage="pairs", numel=4)
    table.feed()
    for first, second, dtype in ((0, 1, "float32"), (2, 3, "float64")):
        group = P2P_GROUP_BASE + first * 5 + second
        table.call(first, "all_to_all", group=group, seq=2, stage="pairs", numel=1)
        table.call(second, "all_to_all", group=group, seq=2, stage="pairs", numel=1, dtype=dtype)
    trouble = table.wait(0.5)
    assert kind(trouble) == ("mismatch", (3,))
    assert trouble is not None and trouble.evidence == (PEERS,)


def test_pairs_in_another_place_of_their_own_are_no_witnesses() -> None:
    """What they call there is what the rank that is ahead of its partner calls, and belongs there."""
    table = Table(5)
    for rank in (0, 1):
        table.call(rank, "broadcast", seq=9, stage="pairs", numel=4)
        table.feed()
        table.call(rank, "all_to_all", group=P2P_GROUP_BASE + 1, seq=3, stage="pairs", numel=1, dtype="float64")
    for rank, dtype in ((2, "float32"), (3, "float64")):
        table.call(rank, "all_to_all", group=P2P_GROUP_BASE + 13, seq=2, stage="pairs", numel=1, dtype=dtype)
    assert kind(table.wait(0.5)) == ("mismatch", (2, 3))

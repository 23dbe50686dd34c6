"""Who is named, and who is not: `TrainingWatch` fed with what agents read of the ranks' pages."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from doctor.smoke.model import Failure
from doctor.smoke.programs.recorder_page import UNBOUND_SIZE
from doctor.watch.long_wait import quiet_sentence
from doctor.watch.suspicion import StackPending
from doctor.watch.verdict import UNKNOWN_END, TrainingWatch

PATIENCE = 10.0


class Ranks:
    """A training whose ranks are moved by hand."""

    def __init__(self, world: int, timeout: float = 0.0) -> None:
        self.watch = TrainingWatch(world, PATIENCE)
        self.stamps = dict.fromkeys(range(world), 1)
        self.calls: dict[int, list[list[Any]]] = {rank: [] for rank in range(world)}
        for rank in range(world):
            self.watch.take_event(rank, {"ev": "rank"}, 0.0)
            self.watch.take_event(rank, {"ev": "joined", "backend": "gloo"}, 0.0)
            group = {"ev": "group", "gid": 0, "name": "0", "ranks": list(range(world)), "timeout": timeout}
            self.watch.take_event(rank, group, 0.0)

    def call(self, rank: int, step: int, numel: int = 8, operation: str = "all_reduce") -> None:
        """An asynchronous call, as DistributedDataParallel's."""
        seq = len(self.calls[rank]) + 1
        self.calls[rank].append([0, seq, operation, "float32", numel, -1, step, "training"])
        self.show(rank, "enqueued", step, 0.0, calls=[self.calls[rank][-1]], entered={"0": seq})

    def show(self, rank: int, state: str, step: int, age: float, **more: Any) -> None:
        self.stamps[rank] += age == 0.0
        fields = {"rank": rank, "stamp": self.stamps[rank], "state": state, "stage": "training", "step": step}
        self.watch.take_snapshot(rank, {**fields, "age": age, "effective": age, **more}, age)

    def verdict(self, now: float, stack: str = "") -> Failure | None:
        self.watch.judge(now, 0.0, lambda _: stack)
        return self.watch.judge(now, 0.0, lambda _: stack)


def three_after_two_steps(timeout: float = 0.0) -> Ranks:
    """``timeout``: the group's own limit; 0: it is not known."""
    ranks = Ranks(3, timeout)
    for step in (0, 1):
        for rank in range(3):
            ranks.call(rank, step)
        ranks.verdict(step)
    for rank in range(3):
        ranks.show(rank, "compute", 2, 0.0)
    ranks.verdict(2.0)
    return ranks


@pytest.mark.parametrize(
    ("stopped", "age", "named"),
    [((1,), 12.0, (1,)), ((0, 1, 2), 12.0, ()), ((0, 1, 2), 400.0, (0, 1, 2))],
)
def test_a_job_that_is_suspended_as_a_whole_is_left_alone(
    stopped: tuple[int, ...], age: float, named: tuple[int, ...]
) -> None:
    """scontrol suspend, docker pause. Beyond the time that its groups permit nobody has resumed it."""
    ranks = three_after_two_steps()
    for seconds in (1.0, age):
        for rank in range(3):
            state = {"process": "T"} if rank in stopped else {}
            ranks.show(rank, "compute", 2, seconds, **state)
        failure = ranks.verdict(2.0 + seconds)
    assert (failure.culprit_ranks if failure else ()) == named


def test_a_rank_that_a_debugger_stops_again_and_again_is_left_alone_however_long_its_step_takes() -> None:
    ranks = three_after_two_steps()
    for second in range(1, 60):
        for rank in range(3):
            state = {"process": "t"} if rank == 1 and second % 7 < 4 else {}
            ranks.show(rank, "compute", 2, float(second), **state)
        assert ranks.verdict(2.0 + second) is None
    for second in range(60, 75):
        for rank in range(3):
            ranks.show(rank, "compute", 2, float(second), **({"process": "t"} if rank == 1 else {}))
        failure = ranks.verdict(2.0 + second)
    assert failure and failure.culprit_ranks == (1,) and failure.seconds < 20


def all_but_one_wait(ranks: Ranks, age: float, state: str = "compute", **more: Any) -> None:
    ranks.call(0, 2)
    ranks.call(1, 2)
    ranks.verdict(2.1)
    for rank in (0, 1):
        ranks.show(rank, "enqueued", 2, age)
    ranks.show(2, state, 2, age, **more)


def test_the_rank_that_the_others_wait_for_is_named() -> None:
    ranks = three_after_two_steps()
    all_but_one_wait(ranks, 2 * PATIENCE)
    failure = ranks.verdict(30.0)
    assert failure and (failure.kind, failure.culprit_ranks, failure.waiting_ranks) == ("blocked", (2,), (0, 1))
    assert failure.stage == "training"


def test_nobody_is_named_before_the_patience_is_over() -> None:
    ranks = three_after_two_steps()
    all_but_one_wait(ranks, 0.9 * PATIENCE)
    assert ranks.verdict(12.0) is None


def test_nobody_is_named_while_nobody_waits() -> None:
    """All ranks write a checkpoint."""
    ranks = three_after_two_steps()
    for rank in range(3):
        ranks.show(rank, "compute", 2, 100 * PATIENCE)
    assert ranks.verdict(1000.0) is None


@pytest.mark.parametrize("kind", ["works", "moves data", "asks again and again", "waits for 10.0.0.7:443"])
def test_a_rank_that_works_is_named_when_the_limit_of_its_group_is_over(kind: str) -> None:
    ranks = three_after_two_steps(timeout=500.0)
    all_but_one_wait(ranks, 49 * PATIENCE, rest=0.5, effort=kind)
    assert ranks.verdict(490.0, stack="in save") is None
    assert ranks.watch.overdue and ranks.watch.overdue.culprit_ranks == (2,)
    all_but_one_wait(ranks, 51 * PATIENCE, rest=0.5, effort=kind)
    failure = ranks.verdict(510.0)
    assert failure and failure.culprit_ranks == (2,) and failure.waiting_ranks == (0, 1)


def test_without_a_limit_of_the_group_thirty_times_the_patience_is_the_limit() -> None:
    ranks = three_after_two_steps()
    all_but_one_wait(ranks, 29 * PATIENCE, rest=0.5, effort="works")
    assert ranks.verdict(290.0) is None
    all_but_one_wait(ranks, 31 * PATIENCE, rest=0.5, effort="works")
    assert ranks.verdict(310.0) is not None


def test_a_program_without_an_optimizer_is_past_its_first_step_when_it_repeats_its_calls() -> None:
    """Inference, or a loop of its own: every step has number 0."""
    ranks = Ranks(3)
    for _ in range(4):
        for rank in range(3):
            ranks.call(rank, 0)
        ranks.verdict(1.0)
    ranks.call(0, 0)
    ranks.call(1, 0)
    ranks.verdict(2.1)
    for rank in (0, 1):
        ranks.show(rank, "enqueued", 0, 2 * PATIENCE)
    ranks.show(2, "compute", 0, 2 * PATIENCE)
    failure = ranks.verdict(30.0)
    assert failure and failure.culprit_ranks == (2,)


def test_a_long_wait_is_told_as_likely_when_the_job_is_ended() -> None:
    ranks = three_after_two_steps(timeout=500.0)
    all_but_one_wait(ranks, 0.9 * PATIENCE, rest=0.9 * PATIENCE, effort="")
    assert ranks.verdict(12.0) is None
    likely = ranks.watch.likely
    assert likely and (likely.certainty, likely.culprit_ranks, likely.waiting_ranks) == ("likely", (2,), (0, 1))


@pytest.mark.parametrize(("age", "kind"), [(4.0, ""), (1.5 * PATIENCE, "works")])
def test_a_short_wait_and_one_for_a_rank_that_works_are_not(age: float, kind: str) -> None:
    ranks = three_after_two_steps(timeout=500.0)
    all_but_one_wait(ranks, age, rest=0.1 if kind else age, effort=kind)
    assert ranks.verdict(12.0) is None and ranks.watch.likely is None


@pytest.mark.parametrize(
    ("waits_for", "age", "named"),
    [("locks_lock_inode_wait", 61.0, True), ("locks_lock_inode_wait", 59.0, False), ("futex_do_wait", 61.0, False)],
)
@pytest.mark.parametrize(("rest", "kind"), [(60.0, ""), (0.1, "works")])
def test_ranks_that_all_wait_for_locks_are_locked_out_unless_the_holder_works(
    waits_for: str, age: float, named: bool, rest: float, kind: str
) -> None:
    ranks = three_after_two_steps(timeout=500.0)
    for rank in range(3):
        ranks.show(rank, "compute", 2, age, rest=rest, effort=kind, waits_for=waits_for, process="S")
    failure = ranks.verdict(80.0)
    assert (failure is not None) is (named and not kind)
    assert failure is None or (failure.kind, failure.culprit_ranks) == ("blocked", (0, 1, 2))


@pytest.mark.parametrize(
    ("kinds", "age", "told"),
    [
        (["asks again and again"] * 3, 2.5 * PATIENCE, True),
        (["asks again and again", "works", ""], 2.5 * PATIENCE, False),
        (["waits for a request at 127.0.0.1:80"] * 3, 2.5 * PATIENCE, False),
        (["asks again and again"] * 3, 1.5 * PATIENCE, False),
    ],
)
def test_ranks_that_are_all_outside_of_collectives_when_the_job_is_ended(
    kinds: list[str], age: float, told: bool
) -> None:
    ranks = three_after_two_steps(timeout=500.0)
    for rank, kind in enumerate(kinds):
        ranks.show(rank, "compute", 2, age, rest=0.1 if kind else age, effort=kind)
    assert ranks.verdict(30.0) is None
    assert bool(ranks.watch.likely) is told


@pytest.mark.parametrize(
    ("kinds", "told"),
    [
        (["asks again and again"] * 3, True),
        (["asks again and again", "", ""], True),
        (["asks again and again", "works", ""], False),
        (["", "", ""], False),
    ],
)
def test_that_all_ranks_ask_again_and_again_is_told_and_no_verdict(kinds: list[str], told: bool) -> None:
    ranks = three_after_two_steps(timeout=500.0)
    for rank, kind in enumerate(kinds):
        ranks.show(rank, "compute", 2, 2 * PATIENCE, rest=0.1 if kind else 2 * PATIENCE, effort=kind)
    assert ranks.verdict(30.0) is None
    assert bool(ranks.watch.overdue) is told


@pytest.mark.parametrize(("port", "named"), [("29500", True), ("443", False), ("", False)])
def test_who_waits_for_the_store_while_all_others_are_in_collectives_is_not_named_alone(port: str, named: bool) -> None:
    """One that waits for another server may be answered, and so may two of whom one works."""
    ranks = three_after_two_steps(timeout=500.0)
    ranks.watch.store_port = port
    all_but_one_wait(ranks, 2 * PATIENCE, rest=0.1, effort="waits for 127.0.0.1:29500")
    failure = ranks.verdict(30.0)
    assert (failure.culprit_ranks if failure else ()) == ((0, 1, 2) if named else ())
    assert not failure or (failure.kind, failure.culprits_differ) == ("mismatch", True)
    ranks = three_after_two_steps(timeout=500.0)
    ranks.watch.store_port = port
    ranks.call(0, 2)
    for rank, state, kind in (
        (0, "enqueued", ""),
        (1, "compute", "works"),
        (2, "compute", "waits for 127.0.0.1:29500"),
    ):
        ranks.show(rank, state, 2, 2 * PATIENCE, rest=0.1, effort=kind)
    assert ranks.verdict(30.0) is None


def four_of_whom_some(group_of: dict[int, list[int]], calls: dict[int, list[str]]) -> Failure | None:
    """Two steps of all_reduce, then these calls: ``group`` forms the rank's own group, ``all`` is an all_reduce.

    ``group_of``: by rank. A rank waits in its last call.
    """
    ranks = Ranks(4, timeout=500.0)
    for step in (0, 1):
        for rank in range(4):
            ranks.call(rank, step)
        ranks.verdict(step)
    for rank, members in group_of.items():
        ranks.watch.take_event(rank, {"ev": "group", "gid": 1, "name": "of", "ranks": members}, 2.0)
    places = {}
    for rank, names in calls.items():
        rows, entered = [], {"0": 2}
        for name in names:
            group = 1 if name == "group" else 0
            entered[str(group)] = entered.get(str(group), 0) + 1
            about = ("", 0) if group else ("float32", 8)
            rows.append([group, entered[str(group)], ("all_reduce", "new_group")[group], *about, -1, 2, "training"])
        group, seq, operation, kind, numel, root, *_ = rows[-1]
        places[rank] = {"entered": entered, "group": group, "seq": seq, "op": operation, "dtype": kind}
        places[rank].update(numel=numel, root=root)
        ranks.show(rank, "collective", 2, 0.0, calls=rows, **copy.deepcopy(places[rank]))
    ranks.verdict(3.0)
    for rank, place in places.items():
        ranks.show(rank, "collective", 2, 4.0, **place)
    return ranks.verdict(7.0)


def test_who_leaves_out_a_group_that_ranks_of_other_groups_have_formed_is_named() -> None:
    """Not the one that waits in it: ranks 0 and 1 have done before what it does."""
    pairs = {0: [0, 1], 1: [0, 1], 2: [2, 3]}
    failure = four_of_whom_some(pairs, {0: ["group", "all"], 1: ["group", "all"], 2: ["group"], 3: ["all"]})
    assert failure and failure.culprit_ranks == (3,)


def test_who_forms_a_group_alone_is_no_innocent() -> None:
    """Ranks 2 and 3 are in the same collective as rank 0, and no members of the group: they show nothing."""
    failure = four_of_whom_some({0: [0, 1], 1: [0, 1]}, {0: ["all"], 1: ["group"], 2: ["all"], 3: ["all"]})
    assert failure and failure.culprit_ranks == (0, 1) and "Ambiguous" in failure.evidence[0]


def test_of_a_key_that_most_ranks_wait_for_the_one_in_a_collective_is_named() -> None:
    """It went another way than the one on which it was to set the key."""
    ranks = three_after_two_steps(timeout=500.0)
    ranks.watch.store_port = "29500"
    ranks.call(0, 2)
    ranks.verdict(2.1)
    ranks.show(0, "enqueued", 2, 2 * PATIENCE)
    for rank in (1, 2):
        ranks.show(rank, "compute", 2, 2 * PATIENCE, rest=0.1, effort="waits for 127.0.0.1:29500")
    failure = ranks.verdict(30.0)
    assert failure and (failure.kind, failure.culprit_ranks) == ("mismatch", (0,))
    assert failure.calls[1].startswith("a call of the job's store") and failure.calls[0].startswith("all_reduce")


@pytest.mark.parametrize(("kind", "named"), [("waits for rank 0", True), ("waits for rank 7", False)])
def test_who_asks_for_what_a_rank_in_a_collective_keeps_locked_is_named_with_it(kind: str, named: bool) -> None:
    """A database with a transaction that rank 0 has begun. One that works may end it yet."""
    ranks = three_after_two_steps(timeout=500.0)
    all_but_one_wait(ranks, 2 * PATIENCE, rest=0.1, effort=kind)
    failure = ranks.verdict(30.0)
    assert (failure.culprit_ranks if failure else ()) == ((0, 2) if named else ())
    ranks = three_after_two_steps(timeout=500.0)
    ranks.call(1, 2)
    ranks.verdict(2.1)
    ranks.show(1, "enqueued", 2, 2 * PATIENCE)
    ranks.show(0, "compute", 2, 2 * PATIENCE, rest=0.1, effort="works")
    ranks.show(2, "compute", 2, 2 * PATIENCE, rest=0.1, effort=kind)
    assert ranks.verdict(30.0) is None


@pytest.mark.parametrize(
    ("state", "age", "rest", "kind", "found"),
    [
        ("compute", 12.0, 0.1, "waits for 127.0.0.1:29500", {2: (12.0, "127.0.0.1:29500")}),
        ("compute", 12.0, 12.0, "", {2: (12.0, "")}),
        ("compute", 4.0, 0.1, "waits for 127.0.0.1:29500", {}),
        ("compute", 12.0, 0.1, "works", {}),
        ("compute", 12.0, 0.1, "sleeps", {}),
        ("compute", 12.0, 0.0, "", {}),
        ("input", 12.0, 12.0, "", {}),
    ],
)
def test_who_waits_outside_of_all_collectives_when_the_job_is_ended(
    state: str, age: float, rest: float, kind: str, found: dict[int, tuple[float, str]]
) -> None:
    ranks = three_after_two_steps(timeout=500.0)
    ranks.show(2, state, 2, age, rest=rest, effort=kind)
    assert ranks.verdict(12.0) is None and ranks.watch.without_sign() == found
    ranks.show(2, state, 2, age, rest=rest, effort=kind, dead="exit status 0")
    assert ranks.watch.without_sign() == {}


@pytest.mark.parametrize("kind", ["works", "asks again and again"])
def test_who_waits_for_a_rank_that_still_works_when_the_job_is_ended(kind: str) -> None:
    ranks = three_after_two_steps(timeout=500.0)
    all_but_one_wait(ranks, 2 * PATIENCE, rest=0.5, effort=kind)
    assert ranks.verdict(20.0, stack="in save") is None
    found = ranks.watch.without_sign()
    assert {rank: peer for rank, (_, peer) in found.items()} == {0: "rank 2", 1: "rank 2"}
    assert "When the job was ended, ranks 0-1 waited for rank 2, without a sign for " in quiet_sentence(found, "")


def test_a_wait_as_long_as_those_before_it_is_not_told() -> None:
    """In each step the others wait 40 s for this rank."""
    ranks = three_after_two_steps(timeout=500.0)
    all_but_one_wait(ranks, 4 * PATIENCE, rest=0.1, effort="works")
    ranks.verdict(42.0)
    ranks.call(2, 2)
    ranks.verdict(42.1)
    for rank in range(3):
        ranks.show(rank, "compute", 3, 0.0)
    all_but_one_wait(ranks, 5 * PATIENCE, rest=5 * PATIENCE, effort="asks again and again")
    ranks.verdict(92.0)
    assert ranks.watch.likely is None


@pytest.mark.parametrize("name", ["save_checkpoint", "evaluate", "compile_fx", "score_samples"])
def test_the_name_of_a_function_decides_nothing(name: str) -> None:
    ranks = three_after_two_steps(timeout=500.0)
    all_but_one_wait(ranks, 2 * PATIENCE, rest=2 * PATIENCE, effort="")
    assert ranks.verdict(30.0, stack=f'File "/x/train.py", line 7 in {name}') is not None


def test_a_rank_that_has_rested_for_a_moment_only_is_not_named() -> None:
    ranks = three_after_two_steps()
    all_but_one_wait(ranks, 2 * PATIENCE, rest=0.4 * PATIENCE, effort="")
    assert ranks.verdict(30.0) is None


def test_of_two_ranks_the_one_that_rests_is_named_and_not_the_one_that_works() -> None:
    ranks = three_after_two_steps()
    ranks.call(0, 2)
    ranks.verdict(2.1)
    ranks.show(0, "enqueued", 2, 2 * PATIENCE)
    ranks.show(1, "compute", 2, 2 * PATIENCE, rest=0.5, effort="works")
    ranks.show(2, "compute", 2, 2 * PATIENCE, rest=2 * PATIENCE, effort="")
    failure = ranks.verdict(30.0)
    assert failure and failure.culprit_ranks == (2,)


def test_a_rank_that_computes_is_told_as_soon_though_it_waits_for_a_cpu() -> None:
    """Its own spinning uses the CPUs: its time without a sign counts whole."""
    ranks = three_after_two_steps(timeout=500.0)
    all_but_one_wait(ranks, 1.1 * PATIENCE, effective=0.1 * PATIENCE, rest=0.5, effort="works")
    assert ranks.verdict(13.0) is None
    assert ranks.watch.overdue and ranks.watch.overdue.culprit_ranks == (2,)


def test_a_rank_that_goes_on_while_its_stack_is_read_is_not_named() -> None:
    """Its checkpoint ended between the look at its page and the look at its stack, which shows no checkpoint more."""
    ranks = three_after_two_steps()
    all_but_one_wait(ranks, 10 * PATIENCE)
    assert ranks.watch.judge(100.0, 0.0, lambda _: "in barrier") is None
    ranks.show(2, "compute", 2, 0.0)
    assert ranks.verdict(100.1) is None


def test_a_rank_whose_stack_is_late_is_named_only_after_it_was_asked_again() -> None:
    ranks = three_after_two_steps()
    all_but_one_wait(ranks, 10 * PATIENCE)
    assert ranks.watch.judge(100.0, 0.0, lambda _: None) is None
    assert ranks.watch.judge(101.0, 0.0, lambda _: None) is None
    assert ranks.watch.judge(102.0, 0.0, lambda _: "in barrier") is None
    assert ranks.watch.judge(102.1, 0.0, lambda _: "in barrier") is not None


def test_a_rank_that_never_writes_its_stack_is_named_all_the_same() -> None:
    ranks = three_after_two_steps()
    all_but_one_wait(ranks, 10 * PATIENCE)
    verdicts = [ranks.watch.judge(100.0 + look, 0.0, lambda _: None) for look in range(9)]
    assert verdicts[0] is None and verdicts[-1] and verdicts[-1].culprit_ranks == (2,)


def test_the_first_step_has_more_time() -> None:
    ranks = Ranks(3)
    for rank in range(3):
        ranks.show(rank, "compute", 0, 0.0)
    ranks.call(0, 0)
    ranks.call(1, 0)
    ranks.verdict(0.1)
    for rank in (0, 1):
        ranks.show(rank, "enqueued", 0, 3 * PATIENCE)
    ranks.show(2, "compute", 0, 3 * PATIENCE)
    assert ranks.verdict(30.0) is None


def test_a_rank_that_computes_with_a_call_under_way_is_not_taken_for_one_that_waits() -> None:
    ranks = three_after_two_steps()
    ranks.call(0, 2)
    ranks.verdict(2.1)
    ranks.show(0, "enqueued", 2, 5 * PATIENCE, cpu=5 * PATIENCE)
    for rank in (1, 2):
        ranks.show(rank, "compute", 2, 5 * PATIENCE, cpu=5 * PATIENCE)
    assert ranks.verdict(60.0) is None


def test_calls_that_are_seen_between_two_judgements_are_all_judged() -> None:
    """Ranks are looked at more often than judged; a lost call left its place open for ever, as if one had not come."""
    ranks = three_after_two_steps()
    for step in (2, 3):
        for rank in range(3):
            ranks.call(rank, step)  # without a judgement between the steps
    for rank in range(3):
        assert [call.seq for call in ranks.watch.snapshots[rank].calls] == [3, 4]
    ranks.verdict(4.0)
    for rank in (0, 1):
        ranks.call(rank, 4)
        ranks.call(rank, 5)
    ranks.verdict(5.0)
    for rank, state in enumerate(("enqueued", "enqueued", "compute")):
        ranks.show(rank, state, 5, 2 * PATIENCE)
    failure = ranks.verdict(30.0)
    assert failure and failure.culprit_ranks == (2,) and ranks.watch.snapshots[0].seq == 5


def test_a_place_that_all_have_entered_by_their_counters_is_open_for_nobody() -> None:
    """A recorder keeps a bounded number of calls; what it could not keep, its counters still tell."""
    ranks = three_after_two_steps()
    for rank in range(3):
        ranks.call(rank, 2)
    ranks.calls[0].append([0, 4, "all_reduce", "float32", 8, -1, 3, "training"])
    for rank in (1, 2):
        ranks.call(rank, 3)
    ranks.show(0, "enqueued", 3, 0.0, entered={"0": 4})
    ranks.verdict(3.0)
    assert ranks.watch.detector.open_call(1) is None


def test_ranks_that_count_their_steps_differently_are_no_mismatch() -> None:
    ranks = Ranks(2)
    for call in range(6):
        ranks.call(0, call)
        ranks.call(1, 2 * call)
        assert ranks.verdict(float(call)) is None


def test_another_size_is_a_mismatch_of_the_rank_that_departs_from_the_others() -> None:
    ranks = three_after_two_steps()
    ranks.call(0, 2)
    ranks.call(1, 2, numel=3)
    ranks.call(2, 2)
    ranks.verdict(2.1)
    failure = ranks.verdict(10.0)
    assert failure and (failure.kind, failure.culprit_ranks) == ("mismatch", (1,))


def test_a_call_of_any_size_has_its_size_in_the_words_alone() -> None:
    """`all_gather` into a list takes tensors of other sizes on other ranks; into one tensor it does not."""
    ranks = three_after_two_steps()
    for rank, numel in enumerate((UNBOUND_SIZE + 4, UNBOUND_SIZE + 5, 6)):
        ranks.call(rank, 2, numel, "all_gather")
    for rank in range(3):
        ranks.call(rank, 3, UNBOUND_SIZE + 1048576 if rank == 1 else 8, "all_gather" if rank == 1 else "all_reduce")
    ranks.verdict(2.1)
    failure = ranks.verdict(10.0)
    assert failure and (failure.kind, failure.culprit_ranks) == ("mismatch", (1,))
    assert (failure.calls[0], failure.calls[1]) == (
        "all_reduce #4 (8 x float32, group world)",
        "all_gather #4 (1048576 x float32, group world)",
    )


def test_a_rank_that_a_launcher_ends_after_another_is_not_named() -> None:
    ranks = three_after_two_steps()
    ranks.show(1, "compute", 2, 0.0, dead="exit status 1", error="ValueError: bad batch 17")
    ranks.show(0, "compute", 2, 0.0, dead="signal 15")
    ranks.show(2, "compute", 2, 0.0, dead="exit status 1", error="RuntimeError: Connection closed by peer")
    ranks.verdict(2.1)
    failure = ranks.verdict(9.0)
    assert failure and (failure.kind, failure.culprit_ranks) == ("dead", (1,))
    assert "bad batch 17" in failure.text


@pytest.mark.parametrize("order", [(0, 2, 1), (2, 0, 1), (1, 0, 2)])
@pytest.mark.parametrize("method", [{"dead": "signal 9"}, {"dead": "exit status 1", "error": "ValueError: bad batch"}])
@pytest.mark.parametrize("ended", ["signal 15", UNKNOWN_END])
def test_the_rank_that_failed_is_named_however_late_it_is_looked_at(
    order: tuple[int, ...], method: dict[str, str], ended: str
) -> None:
    """On a busy host a launcher may have ended the others before doctor comes round to the first."""
    ranks = three_after_two_steps()
    for place, rank in enumerate(order):
        ranks.show(rank, "compute", 2, 2.1, died_at=2.1 + 0.2 * place, **(method if rank == 1 else {"dead": ended}))
    ranks.verdict(2.1)
    failure = ranks.verdict(9.0)
    assert failure and (failure.kind, failure.culprit_ranks) == ("dead", (1,))


def test_a_rank_that_its_launcher_has_reaped_comes_before_those_that_it_terminates() -> None:
    ranks = three_after_two_steps()
    ranks.show(0, "compute", 2, 2.1, dead="signal 15", died_at=2.1)
    ranks.show(2, "compute", 2, 2.1, dead=UNKNOWN_END, died_at=2.2)
    ranks.verdict(2.1)
    failure = ranks.verdict(9.0)
    assert failure and (failure.kind, failure.culprit_ranks) == ("dead", (2,))


def test_a_rank_that_somebody_terminates_is_named_though_its_launcher_kills_the_others_then() -> None:
    ranks = three_after_two_steps()
    ranks.show(2, "compute", 2, 2.1, dead="signal 15", died_at=2.2)
    for rank in (0, 1):
        ranks.show(rank, "compute", 2, 2.5)
        ranks.show(rank, "compute", 2, 2.7, dead="signal 9", died_at=2.7)
    ranks.verdict(2.7)
    failure = ranks.verdict(9.0)
    assert failure and (failure.kind, failure.culprit_ranks) == ("dead", (2,))


def test_a_rank_that_somebody_terminates_is_named_where_the_others_break() -> None:
    ranks = three_after_two_steps()
    ranks.show(2, "compute", 2, 0.0, dead="signal 15")
    for rank in (0, 1):
        ranks.show(rank, "compute", 2, 0.1, dead="exit status 1", error="RuntimeError: Connection closed by peer")
    ranks.verdict(2.1)
    failure = ranks.verdict(9.0)
    assert failure and (failure.kind, failure.culprit_ranks) == ("dead", (2,))


def test_a_rank_that_was_done_while_another_waited_for_it_has_left() -> None:
    """The other's connection breaks with that, and no rank is known that failed."""
    ranks = three_after_two_steps()
    for rank in (0, 1):
        ranks.call(rank, 2)
    ranks.show(2, "done", 2, 0.0, dead="exit status 0")
    broken = {"dead": "exit status 1", "error": "RuntimeError: Connection closed by peer"}
    for rank in (0, 1):
        place = {"group": 0, "seq": 3, "op": "all_reduce", "dtype": "float32", "numel": 8, "root": -1}
        ranks.show(rank, "collective", 2, 0.0, **place, **broken)
    ranks.verdict(2.1)
    failure = ranks.verdict(9.0)
    assert failure and (failure.kind, failure.culprit_ranks) == ("left", (2,))


@pytest.mark.parametrize("remaining", [{"state": "done"}, {"state": "compute"}])
def test_a_rank_has_left_also_where_the_others_call_and_its_end_are_found_at_once(remaining: dict[str, str]) -> None:
    """On a busy host the call, the broken connection and the end of a rank lie between two looks at it."""
    ranks = three_after_two_steps()
    ranks.show(2, **remaining, step=2, age=0.0, dead="exit status 0")
    broken = {"dead": "exit status 1", "error": "RuntimeError: Connection reset by peer"}
    for rank in (0, 1):
        call = [0, 3, "all_reduce", "float32", 8, -1, 2, "training"]
        ranks.show(rank, "enqueued", 2, 0.0, calls=[call], entered={"0": 3}, **broken)
    ranks.watch.judge(2.1, 0.0, lambda _: "")
    for later in (2.2, 4.0, 9.0):
        failure = ranks.watch.judge(later, 0.0, lambda _: "")
    assert failure and (failure.kind, failure.culprit_ranks) == ("left", (2,))


def test_a_rank_that_lost_its_store_is_the_cause_and_those_that_lost_the_rank_are_not() -> None:
    """Seen with gloo: rank 1 read from a server that reset the connection; the others then found rank 1 gone."""
    ranks = three_after_two_steps()
    error = "ConnectionResetError: [Errno 104] Connection reset by peer"
    ranks.show(1, "compute", 2, 0.0, dead="exit status 1", error=error)
    broken = {"dead": "exit status 1", "error": "RuntimeError: Read error [10.77.1.2]:44749: Connection reset by peer"}
    for rank in (0, 2):
        place = {"group": 0, "seq": 3, "op": "all_reduce", "dtype": "float32", "numel": 8, "root": -1}
        ranks.show(rank, "collective", 2, 0.0, **place, **broken)
    ranks.verdict(2.1)
    failure = ranks.verdict(9.0)
    assert failure and failure.culprit_ranks == (1,)


@pytest.mark.parametrize("dead", ["exit status 0", UNKNOWN_END])
def test_a_rank_whose_hook_has_removed_itself_is_not_judged(dead: str) -> None:
    """It goes on unseen: it calls what the others wait for, and ends well."""
    ranks = three_after_two_steps()
    ranks.watch.take_event(2, {"ev": "hook", "text": "recording allreduce_ failed", "gone": True}, 2.0)
    ranks.show(2, "start", 2, 0.0)
    all_but_one_wait(ranks, 5 * PATIENCE, "start")
    assert ranks.verdict(60.0) is None
    for rank in range(3):
        ranks.watch.take_event(rank, {"ev": "hook", "text": "recording allreduce_ failed", "gone": True}, 60.0)
        ranks.show(rank, "start", 2, 0.0, dead=dead)
    assert ranks.verdict(70.0) is None and ranks.verdict(80.0) is None


def test_a_rank_whose_hook_has_removed_itself_and_that_dies_is_named() -> None:
    ranks = three_after_two_steps()
    ranks.watch.take_event(2, {"ev": "hook", "text": "recording allreduce_ failed", "gone": True}, 2.0)
    all_but_one_wait(ranks, 1.0, "start")
    ranks.show(2, "start", 2, 1.0, dead="signal 11")
    ranks.verdict(3.0)
    failure = ranks.verdict(5.0)
    assert failure and (failure.kind, failure.culprit_ranks) == ("dead", (2,))


def in_the_rendezvous(world: int, arrived: tuple[int, ...], **event: object) -> TrainingWatch:
    watch = TrainingWatch(world, PATIENCE)
    for rank in arrived:
        watch.take_event(rank, {"ev": "rank", **event}, 1.0)
    return watch


@pytest.mark.parametrize(
    ("effort", "named"),
    [(None, False), ((0.1, "works"), False), ((0.1, "sleeps"), False), ((0.1, ""), False), ((40.0, ""), True)],
)
def test_of_the_late_ranks_one_that_has_come_to_rest_is_named(effort: tuple[float, str] | None, named: bool) -> None:
    """One that prepares its data before it joins is waited for, as `init_process_group` does."""
    watch = in_the_rendezvous(4, (0, 1, 3))
    if effort is not None:
        watch.efforts[2] = effort
    assert watch.judge(4 * PATIENCE, 0.0, lambda _: "") is None
    failure = watch.judge(6 * PATIENCE, 0.0, lambda _: "")
    assert (failure.culprit_ranks if failure else ()) == ((2,) if named else ())
    assert named or (watch.overdue and watch.overdue.culprit_ranks == (2,))


def test_a_rank_that_was_not_started_is_named_beside_one_that_is_at_work() -> None:
    watch = in_the_rendezvous(4, (0, 1))
    watch.efforts[2] = 0.1, "works"
    watch.rendezvous.not_started = {3}
    failure = watch.judge(6 * PATIENCE, 0.0, lambda _: "")
    assert failure and (failure.kind, failure.culprit_ranks) == ("never-joined", (3,))
    assert "no process was started for it" in failure.text


@pytest.mark.parametrize(("timeout", "waited"), [(100.0, 100.0), (None, 300.0), (float("inf"), 300.0), ("x", 300.0)])
def test_whoever_is_late_is_named_when_the_others_give_up(timeout: object, waited: float) -> None:
    watch = in_the_rendezvous(4, (0, 1, 3), timeout=timeout)
    watch.efforts[2] = 0.1, "works"
    assert watch.judge(0.9 * waited, 0.0, lambda _: "") is None
    failure = watch.judge(waited + 1.0, 0.0, lambda _: "")
    assert failure and (failure.kind, failure.culprit_ranks) == ("never-joined", (2,))


@pytest.mark.parametrize(
    "event",
    [{}, {"ev": "group"}, {"ev": "group", "gid": "x", "ranks": [0]}, {"ev": "group", "gid": 0, "ranks": [0, 99]}],
)
def test_events_that_no_hook_writes_are_left_out(event: dict[str, Any]) -> None:
    watch = TrainingWatch(2, PATIENCE)
    watch.take_event(0, event, 0.0)
    assert watch.detector.groups == {0: ("world", (0, 1))}


@pytest.mark.parametrize("dead", ["exit status 0", "signal 9", UNKNOWN_END])
def test_a_rank_that_is_done_may_end_as_it_likes(dead: str) -> None:
    """os._exit after the last collective, and a launcher that ends what is left."""
    ranks = three_after_two_steps()
    for rank in range(3):
        ranks.show(rank, "done", 2, 0.0, dead=dead)
    assert ranks.verdict(3.0) is None and ranks.verdict(60.0) is None


@pytest.mark.parametrize("heard_first", [0, 1])
def test_of_ranks_on_several_hosts_the_one_that_ended_first_is_named_whichever_is_heard_of_first(
    heard_first: int,
) -> None:
    """Rank 1 is killed; its launcher, on another host than this one, ends rank 0 a moment later."""
    ranks = three_after_two_steps()
    for rank in (heard_first, 1 - heard_first):
        ranks.show(rank, "compute", 2, 0.0, dead="signal 15" if rank == 0 else "signal 9", died_at=5.0 - rank)
        ranks.verdict(5.1)
    ranks.show(2, "compute", 2, 0.0, dead="exit status 1", error="RuntimeError: Connection closed by peer")
    ranks.verdict(5.2)
    failure = ranks.verdict(9.0)
    assert failure and (failure.kind, failure.culprit_ranks) == ("dead", (1,))


def test_ranks_of_hosts_without_a_watch_are_not_named_for_not_being_seen() -> None:
    watch = in_the_rendezvous(4, (0, 1))
    assert watch.judge(6 * PATIENCE, 0.0, lambda _: "", unseen=[2, 3]) is None
    failure = watch.judge(31 * PATIENCE, 0.0, lambda _: "", unseen=[2, 3])
    assert failure and (failure.kind, failure.culprit_ranks, failure.waiting_ranks) == ("never-joined", (), (0, 1))
    assert "ranks 2-3 did not call init_process_group" in failure.text and "no doctor watch" in failure.text


def test_of_unseen_ranks_only_those_on_a_watched_host_are_named() -> None:
    failure = in_the_rendezvous(4, (0, 1, 2)).judge(31 * PATIENCE, 0.0, lambda _: "", unseen=[])
    assert failure and failure.culprit_ranks == (3,)


def wait_in_step_2(ranks: Ranks, waiting: range, age: float) -> None:
    for rank in waiting:
        ranks.call(rank, 2)
    ranks.verdict(2.1)
    place = {"group": 0, "seq": 3, "op": "all_reduce", "dtype": "float32", "numel": 8, "root": -1}
    for rank in waiting:
        ranks.show(rank, "collective", 2, age, **place)


def test_a_host_that_is_cut_off_is_named_when_the_others_wait_for_its_ranks() -> None:
    ranks = three_after_two_steps()
    wait_in_step_2(ranks, range(2), 2 * PATIENCE)
    failure = ranks.watch.host_cut({"w1": (2,)}, 30.0)
    assert failure and (failure.kind, failure.culprit_ranks, failure.waiting_ranks) == ("silent", (2,), (0, 1))
    assert failure.text.startswith("w1: nothing comes from it any more")


def test_a_connection_that_is_lost_while_the_training_goes_on_names_nobody() -> None:
    ranks = three_after_two_steps()
    wait_in_step_2(ranks, range(2), 0.5 * PATIENCE)
    assert ranks.watch.host_cut({"w1": (2,)}, 30.0) is None
    for rank in range(2):
        ranks.show(rank, "compute", 3, 3 * PATIENCE)
    assert ranks.watch.host_cut({"w1": (2,)}, 60.0) is None


def test_a_rank_whose_stack_is_under_way_from_another_host_is_not_named_yet() -> None:
    ranks = three_after_two_steps()
    all_but_one_wait(ranks, 10 * PATIENCE)

    def pending(rank: int) -> str:
        raise StackPending

    assert [ranks.watch.judge(100.0 + look, 0.0, pending) for look in range(20)] == [None] * 20
    assert ranks.watch.judge(130.0, 0.0, lambda _: "in barrier") is None


@pytest.mark.parametrize(("later", "kind", "certainty"), [(5.2, "network", "evidence"), (4.8, "dead", "certain")])
def test_a_rank_that_its_launcher_ends_after_a_broken_connection_is_no_cause(
    later: float, kind: str, certainty: str
) -> None:
    """The other end of the connection is on a host that nobody watches; SIGTERM comes after it, or was its cause."""
    ranks = three_after_two_steps()
    ranks.show(0, "compute", 2, 0.0, dead="exit status 1", error="RuntimeError: Connection refused", died_at=5.0)
    ranks.show(1, "compute", 2, 0.0, dead="signal 15", died_at=later)
    ranks.verdict(6.0)
    failure = ranks.verdict(60.0)
    assert failure and (failure.kind, failure.certainty) == (kind, certainty)
    assert failure.culprit_ranks == ((1,) if kind == "dead" else ())


GAVE_UP = "RuntimeError: Timed out waiting 5000ms for recv operation to complete"


def two_end_in_a_call(ranks: Ranks, error: str) -> None:
    """Ranks 0 and 1 end in their third call, with an error; rank 2 has not come."""
    for rank in (0, 1):
        ranks.call(rank, 2)
    ranks.verdict(2.1)
    ranks.show(2, "compute", 2, 5.0)
    for rank in (0, 1):
        ranks.show(rank, "enqueued", 2, 5.0, dead="exit status 1", error=error, died_at=5.0)
    ranks.verdict(5.0)


@pytest.mark.parametrize("error", [GAVE_UP, "RuntimeError: Launch kernel failed, name:Default/AllReduce-op0"])
@pytest.mark.parametrize("end", ["", "signal 15", "signal 9", UNKNOWN_END])
def test_the_rank_that_others_gave_up_waiting_for_is_named(error: str, end: str) -> None:
    """The job's own time limit is shorter than the patience; its launcher ends the one that is left."""
    ranks = three_after_two_steps()
    two_end_in_a_call(ranks, error)
    ranks.show(2, "compute", 2, 6.0)
    if end:
        ranks.show(2, "compute", 2, 6.5, dead=end, died_at=6.5)
    ranks.verdict(6.5)
    failure = ranks.verdict(9.0)
    assert failure and (failure.kind, failure.culprit_ranks, failure.waiting_ranks) == ("blocked", (2,), (0, 1))
    assert failure.certainty == "evidence" and failure.text == "the others gave up waiting for it"
    assert failure.evidence == (f"Rank 0 gave up waiting: {error}",)


def test_a_rank_that_could_not_run_while_others_gave_up_waiting_for_it_is_not_named() -> None:
    """All hosts may be short of CPUs: to be late is no fault."""
    ranks = three_after_two_steps()
    two_end_in_a_call(ranks, GAVE_UP)
    ranks.show(2, "compute", 2, 60.0, effective=7.0)
    ranks.verdict(60.5)
    failure = ranks.verdict(63.0)
    assert failure and (failure.kind, failure.culprit_ranks) == ("budget", ())
    assert "gave up waiting for rank 2, which could run for 7 of" in failure.text


@pytest.mark.parametrize("end", ["signal 15", "signal 9", UNKNOWN_END])
@pytest.mark.parametrize("found_first", [True, False])
def test_the_rank_that_others_gave_up_waiting_for_is_named_where_all_ends_are_found_at_once(
    end: str, found_first: bool
) -> None:
    """On a busy host the launcher has ended it before doctor sees that the others have failed."""
    ranks = three_after_two_steps()
    for rank in (0, 1):
        ranks.call(rank, 2)
    ranks.verdict(2.1)
    for rank in (0, 1, 2):
        ranks.show(rank, "compute" if rank == 2 else "enqueued", 2, 4.9)
    for rank in (2, 0, 1) if found_first else (0, 1, 2):
        method = {"dead": end} if rank == 2 else {"dead": "exit status 1", "error": GAVE_UP}
        ranks.show(rank, "compute" if rank == 2 else "enqueued", 2, 5.0, died_at=5.0, **method)
    ranks.verdict(5.0)
    failure = ranks.verdict(9.0)
    assert failure and (failure.kind, failure.culprit_ranks) == ("blocked", (2,))


def test_a_rank_that_has_not_come_when_the_others_connections_break_is_not_named() -> None:
    ranks = three_after_two_steps()
    two_end_in_a_call(ranks, "RuntimeError: Connection closed by peer [10.0.0.3]:40822")
    failure = ranks.verdict(9.0)
    assert failure and failure.kind == "network"


def test_ranks_that_gave_up_in_a_collective_that_was_not_seen_and_nobody_is_named() -> None:
    """As in a compiled graph of MindSpore. Who stayed away, and whether anybody did, is not known."""
    ranks = three_after_two_steps()
    error = "RuntimeError: Launch kernel failed: Default/grad_reducer-DistributedGradReducer/AllReduce-op0"
    for rank in (0, 1):
        ranks.show(rank, "compute", 2, 5.0, dead="exit status 1", error=error, died_at=5.0)
    ranks.show(2, "compute", 2, 6.0)
    ranks.show(2, "compute", 2, 6.5, dead="signal 9", died_at=6.5)
    ranks.verdict(6.5)
    failure = ranks.verdict(9.0)
    assert failure and (failure.kind, failure.culprit_ranks, failure.op) == ("network", (), "")
    assert failure.text == "ranks 0-1 gave up waiting for another rank"
    assert failure.evidence[0] == "Without an error of their own: rank 2"


def test_a_rank_that_is_killed_before_the_others_give_up_has_died() -> None:
    ranks = three_after_two_steps()
    for rank in (0, 1):
        ranks.call(rank, 2)
    ranks.verdict(2.1)
    ranks.show(2, "compute", 2, 4.0, dead="signal 9", died_at=4.0)
    for rank in (0, 1):
        ranks.show(rank, "enqueued", 2, 4.5)
    for rank in (0, 1):
        ranks.show(rank, "enqueued", 2, 5.0, dead="exit status 1", error=GAVE_UP, died_at=5.0)
    ranks.verdict(5.0)
    failure = ranks.verdict(9.0)
    assert failure and (failure.kind, failure.culprit_ranks) == ("dead", (2,))


def test_a_rank_that_waits_with_its_cpu_at_work_waits_all_the_same() -> None:
    """Those of MindSpore turn in a loop until their result is there, and those of a device in its driver; of others, it
    is a sign of work.
    """
    cases = ("mindspore", "hccl", (2,)), ("torch", "nccl", (2,)), ("torch", "npu:hccl", (2,)), ("torch", "gloo", ())
    for library, backend, results in cases:
        ranks = three_after_two_steps()
        for rank in range(3):
            ranks.watch.take_event(rank, {"ev": "joined", "backend": backend, "library": library}, 2.0)
        all_but_one_wait(ranks, 2 * PATIENCE)
        for rank in (0, 1):
            ranks.show(rank, "enqueued", 2, 2 * PATIENCE, cpu=2 * PATIENCE)
        failure = ranks.verdict(30.0)
        assert (failure.culprit_ranks if failure else ()) == results


def on_devices(world: int = 3) -> Ranks:
    """Two steps over NCCL, whose calls end before their collectives do."""
    ranks = Ranks(world)
    for rank in range(world):
        ranks.watch.take_event(rank, {"ev": "joined", "backend": "nccl"}, 0.0)
    for step in (0, 1):
        for rank in range(world):
            ranks.call(rank, step)
        ranks.verdict(step)
    return ranks


def test_a_rank_that_waits_for_its_device_waits_for_the_collective_it_has_called() -> None:
    """`dist.all_reduce` of NCCL has returned, and `loss.item()` does not (torch 2.11 on an H100)."""
    ranks = on_devices()
    for rank in (0, 1):
        ranks.call(rank, 2)
    ranks.verdict(2.1)
    for rank in (0, 1):
        ranks.show(rank, "compute", 2, 2 * PATIENCE, cpu=2 * PATIENCE)
    ranks.show(2, "compute", 2, 2 * PATIENCE, rest=2 * PATIENCE)
    failure = ranks.verdict(30.0)
    assert failure and (failure.kind, failure.culprit_ranks, failure.waiting_ranks) == ("blocked", (2,), (0, 1))


def test_ranks_that_have_made_the_same_calls_on_devices_wait_for_nobody() -> None:
    """A long step, or an evaluation of all ranks."""
    ranks = on_devices()
    for rank in range(3):
        ranks.show(rank, "compute", 2, 2 * PATIENCE, cpu=2 * PATIENCE)
    assert ranks.verdict(30.0) is None


def test_a_rank_that_works_before_its_call_on_a_device_is_not_named() -> None:
    ranks = on_devices()
    for rank in (0, 1):
        ranks.call(rank, 2)
    ranks.verdict(2.1)
    for rank in (0, 1):
        ranks.show(rank, "compute", 2, 2 * PATIENCE, cpu=2 * PATIENCE)
    ranks.show(2, "compute", 2, 2 * PATIENCE, cpu=2 * PATIENCE, rest=0.0, effort="works")
    assert ranks.verdict(30.0) is None


WATCHDOG = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum={0}, OpType=ALLREDUCE) ran for"


@pytest.mark.parametrize(("given_up", "culprits"), [(3, ()), (4, (2,))])
def test_a_rank_whose_watchdog_ended_it_has_waited(given_up: int, culprits: tuple[int, ...]) -> None:
    """Source: two ranks on one H200, torch 2.11: a kernel of rank 1 took longer than the limit of the group.

    The process ended a minute after the watchdog gave up, and had gone on to a later call meanwhile: who has not
    entered that one was not waited for. A rank that has not entered the one that was given up is named.
    """
    ranks = three_after_two_steps()
    for rank in range(3):
        ranks.call(rank, 2)
    ranks.show(2, "compute", 3, 0.0)
    for rank in (0, 1):
        ranks.call(rank, 3)
    ranks.verdict(3.0)
    error = WATCHDOG.format(given_up)
    ranks.show(0, "enqueued", 3, 0.5, dead="signal 6", error=error)
    for rank in (1, 2):
        ranks.show(rank, "enqueued" if rank == 1 else "compute", 3, 0.6, dead="signal 15")
    ranks.verdict(50.0)
    failure = ranks.verdict(52.0)
    assert failure and failure.culprit_ranks == culprits
    assert failure.kind != "dead"


@pytest.mark.parametrize("others", [[2, 3], [0, 1]], ids=["both are the first", "one is the second"])
def test_ranks_that_form_groups_in_other_orders_are_named_and_not_the_network(others: list[int]) -> None:
    """Gloo knows a group by how many were made before: ranks 2 and 3 make another one than ranks 0 and 1 do first."""
    ranks = Ranks(4, timeout=500.0)
    for step in (0, 1):
        for rank in range(4):
            ranks.call(rank, step)
        ranks.verdict(step)
    calls = [[1, 1, "new_group", "", 0, -1, 2, "training"]]
    place = {"entered": {"0": 2, "1": 1}, "group": 1, "seq": 1, "op": "new_group", "dtype": "", "numel": 0, "root": -1}
    for seconds in (0.0, 100.0, 200.0):
        for rank in range(4):
            members = [0, 1] if rank < 2 else [2, 3]
            number = 1 if rank < 2 or others == [2, 3] else 2
            if not seconds:
                event = {"ev": "group", "gid": 1, "name": f"no. {number} of", "ranks": members}
                ranks.watch.take_event(rank, event, 2.0)
            ranks.show(rank, "collective", 2, seconds, calls=copy.deepcopy(calls), **copy.deepcopy(place))
        failure = ranks.verdict(3.0 + seconds)
    if others == [0, 1]:
        assert failure and failure.kind == "network"
        return
    assert failure and (failure.kind, failure.culprit_ranks) == ("mismatch", (0, 1, 2, 3))
    assert failure.calls[0] == "new_group #1 (group no. 1 of [0,1])"
    assert failure.calls[3] == "new_group #1 (group no. 1 of [2,3])"
    assert "form different groups" in failure.evidence[0]

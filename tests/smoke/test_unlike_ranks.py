"""Whom a crash, a late rendezvous or silence is laid at where the interpreters of a host differ from the others."""

from __future__ import annotations

import pytest

from doctor.facts.smoke.first_stages import RankFailed, TorchImported
from doctor.smoke.model import Failure, Layout, RankPlacement, SmokePlan
from doctor.smoke.results.environments import unlike_interpreters
from doctor.smoke.run.progress import StageProgress
from doctor.smoke.run.unlike_ranks import compared_by_torch, crashed_by_unlike, with_unlike

LATE, OF_NCCL = {"TORCH_GLOO_LAZY_INIT": "1"}, {"NCCL_ALGO": "Ring"}
HARMLESS = {"TORCH_GLOO_LAZY_INIT": "0", "TORCH_DISTRIBUTED_DEBUG": "INFO", "GLOO_SOCKET_IFNAME": "eth9", **OF_NCCL}


def imported(*variables: dict[str, str]) -> dict[str, list[TorchImported]]:
    """Of hosts a, b, c ...: what their interpreters say, with these variables."""
    return {
        chr(97 + place): [TorchImported(-1, 1.0, "2.13", "3.11", variables=own)] for place, own in enumerate(variables)
    }


def crash(culprits: tuple[int, ...], *variables: dict[str, str], text: str = "signal 11") -> Failure:
    """What becomes of the crash of these ranks, one on each host."""
    count = len(variables)
    places = tuple(RankPlacement(rank, chr(97 + rank)) for rank in range(count))
    plan = SmokePlan("gloo", places, (Layout(dp=count),))
    progress = StageProgress(plan, 0.0)
    for host, events in imported(*variables).items():
        progress.add_event(host, events[0], 1.0)
    waiting = tuple(rank for rank in range(count) if rank not in culprits)
    return crashed_by_unlike(Failure("dead", culprits, waiting, stage="rendezvous", text=text), plan, progress)


@pytest.mark.parametrize(
    ("backend", "variables", "hosts"),
    [
        ("gloo", ({}, LATE, {}), ["b"]),
        ("gloo", (LATE, {}, LATE), ["b"]),
        ("gloo", ({}, LATE), ["b"]),  # what nobody set is as usual
        ("gloo", (LATE, LATE), []),
        ("gloo", (HARMLESS, {}, {}), []),
        ("nccl", (OF_NCCL, {}, {}), ["a"]),
        ("hccl", (OF_NCCL, {}, {}), []),
        ("gloo", ({"GLOO_DEVICE_TRANSPORT": "TCP"}, {"GLOO_DEVICE_TRANSPORT": "TCP_TLS"}, {}), ["b"]),
    ],
)
def test_hosts_differ_in_what_their_ranks_must_have_alike(
    backend: str, variables: tuple[dict[str, str], ...], hosts: list[str]
) -> None:
    named, sentence = unlike_interpreters(imported(*variables), backend)
    assert (named, bool(sentence)) == (hosts, bool(hosts))


def test_the_sentence_has_the_values_and_who_has_them() -> None:
    _, sentence = unlike_interpreters(imported({}, LATE, {}), "gloo")
    assert sentence.startswith("TORCH_GLOO_LAZY_INIT is 1 on b and not set on a,c: ranks that differ in it")


def test_where_all_others_crash_the_host_that_differs_is_the_cause() -> None:
    failure = crash((0, 2), {}, LATE, {})
    assert (failure.kind, failure.culprit_ranks, failure.waiting_ranks) == ("never-joined", (1,), (0, 2))
    assert "ranks 0, 2: signal 11; TORCH_GLOO_LAZY_INIT is 1 on b" in failure.text


def test_where_gloo_is_known_to_crash_by_it_one_crash_is_enough() -> None:
    assert crash((0,), {}, LATE).culprit_ranks == (1,)
    assert crash((0,), {}, LATE, {}).culprit_ranks == (1,)


@pytest.mark.parametrize(("odd", "named"), [((1,), (1,)), ((1, 2, 3), ()), ((), ())])
def test_of_a_host_whose_ranks_differ_the_rank_is_named(odd: tuple[int, ...], named: tuple[int, ...]) -> None:
    """As where a launcher starts each by a script of its own: rank 0 crashes when rank 1 alone connects late."""
    plan = SmokePlan("gloo", tuple(RankPlacement(rank, "a") for rank in range(4)), (Layout(dp=4),))
    progress = StageProgress(plan, 0.0)
    for rank in range(4):
        event = TorchImported(rank, 1.0, "2.13", "3.11", variables=LATE if rank in odd else {})
        progress.add_event("a", event, 1.0)
    failure = crashed_by_unlike(Failure("dead", (0,), (), stage="rendezvous", text="signal 11"), plan, progress)
    assert (failure.kind, failure.culprit_ranks) == (("never-joined", named) if named else ("dead", (0,)))
    assert ("TORCH_GLOO_LAZY_INIT is 1 on a (rank 1) and not set on a (rank [0,2-3])" in failure.text) == (odd == (1,))


def test_else_of_two_hosts_it_may_be_either_and_of_some_as_well() -> None:
    details = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
    assert crash((0,), {}, details).culprit_ranks == (0, 1)
    assert crash((0,), {}, details, {}).culprit_ranks == (0, 1)
    assert crash((0, 2), {}, details, {}).culprit_ranks == (1,)


def test_a_crash_is_its_own_where_nothing_differs_or_the_host_that_differs_crashes() -> None:
    for failure in (
        crash((0,), {}, {}, {}),
        crash((0,), {}, HARMLESS, {}),
        crash((1,), {}, LATE, {}),
        crash((0, 2), {}, LATE, {}, text="signal 9"),
    ):
        assert failure.kind == "dead", failure


FINGERPRINT = "CollectiveFingerPrint(SequenceNumber=16, OpType={0}, TensorShape=[8], TensorDtypes=Float, TensorDevice)"


@pytest.mark.parametrize(
    ("called", "named"),
    [
        (("ALLREDUCE", "BROADCAST", "ALLREDUCE"), (1,)),
        (("ALLREDUCE", "BROADCAST"), (0, 1)),
        (("ALLREDUCE",) * 3, None),
    ],
)
def test_where_torch_compares_the_calls_the_one_unlike_most_is_wrong(
    called: tuple[str, ...], named: tuple[int, ...] | None
) -> None:
    count = len(called)
    places = tuple(RankPlacement(rank, chr(97 + rank)) for rank in range(count))
    progress = StageProgress(SmokePlan("gloo", places, (Layout(dp=count),)), 0.0)
    sides = [f"Rank {rank} is running collective: {FINGERPRINT.format(op)}" for rank, op in enumerate(called)]
    for rank in range(count):
        text = f"Detected mismatch between collectives on ranks. {sides[rank]}, but {sides[rank != 1]}"
        progress.add_event(chr(97 + rank), RankFailed(rank, "RuntimeError", text), 1.0)
    dead = Failure("dead", tuple(range(count - 1)), text=f"exit status 13: {progress.errors[0]}")
    failure = compared_by_torch(dead, progress)
    assert (failure.kind, failure.culprit_ranks) == (("mismatch", named) if named else ("dead", dead.culprit_ranks))
    assert failure.calls.get(1) == ("broadcast #16 [8]" if named else None)


def test_bytes_that_do_not_arrive_are_laid_at_who_differs() -> None:
    plan = SmokePlan("gloo", tuple(RankPlacement(rank, "abc"[rank]) for rank in range(3)), (Layout(dp=3),))
    progress = StageProgress(plan, 0.0)
    for host, events in imported({}, {}, LATE).items():
        progress.add_event(host, events[0], 1.0)
    assert with_unlike(Failure("network", (), (0, 1, 2)), plan, progress).culprit_ranks == (2,)
    cut = Failure("network", (), (0, 1, 2), links=(("a", "b"),))
    assert with_unlike(cut, plan, progress) == cut

"""Every collective of a rank gives what it must; where it does not, the event says which element."""

from __future__ import annotations

import functools
from fractions import Fraction

import pytest

from doctor.smoke.model import Layout
from tests.smoke.ranks import Ranks, worker

pytestmark = pytest.mark.torch

OPS = {
    *("broadcast", "reduce", "all_reduce", "all_reduce max", "all_reduce min", "all_reduce avg", "all_gather"),
    *("reduce_scatter", "all_to_all", "send_recv", "barrier"),
}
DTYPES = {"float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool"}
LAYOUTS = {
    2: (Layout(dp=2), Layout(tp=2)),
    3: (Layout(dp=3),),
    4: (Layout(dp=4), Layout(dp=2, tp=2), Layout(pp=2, dp=2)),
}


@functools.cache
def drilled(world: int, faults: str = "", **plan: int) -> Ranks:
    return Ranks(world, ["collectives"], faults, layouts=LAYOUTS[world], **plan)


@pytest.mark.parametrize("world", [2, 3, 4])
def test_all_of_it_is_right(world: int) -> None:
    ranks = drilled(world)
    assert not ranks.of("wrong") + ranks.of("error") + ranks.of("unsupported")
    assert len(ranks.of("done")) == world
    for rank in range(world):
        checked = ranks.of("checked", rank=rank, gid=0)
        assert {event["op"] for event in checked} == OPS
        for ops in (("broadcast", "all_gather", "all_to_all"), ("all_reduce", "reduce", "reduce_scatter")):
            assert {dtype for event in checked if event["op"] in ops for dtype in event["dtypes"]} == DTYPES


def test_every_group_of_the_layouts_is_used_and_one_of_each_kind_is_timed() -> None:
    ranks = drilled(4)
    groups = {event["gid"]: (event["name"], event["ranks"]) for event in ranks.of("group")}
    assert groups == {
        1: ("tp2/dp2 0,1", [0, 1]),
        2: ("tp2/dp2 2,3", [2, 3]),
        3: ("dp2/pp2 0,2", [0, 2]),
        4: ("dp2/pp2 1,3", [1, 3]),
    }
    for gid, (_, members) in groups.items():
        assert {event["rank"] for event in ranks.of("checked", gid=gid, op="reduce_scatter")} == set(members)
    assert {(event["gid"], event["rank"]) for event in ranks.of("speed")} == {(0, 0), (1, 0), (3, 0)}
    sizes = {(event["op"], event["bytes"]): len(event["seconds"]) for event in ranks.of("speed", gid=0)}
    assert sizes[("all_reduce", 4)] == sizes[("all_gather", 1 << 20)] == 3


def test_stages_of_a_pipeline_send_and_receive() -> None:
    ranks = Ranks(4, ["collectives"], layouts=[Layout(pp=4), Layout(pp=2, tp=2)])
    assert {event["op"] for event in ranks.of("checked") if event["gid"] in (3, 4)} == {"send_recv"}


SPOILT = """
class TracedComm(TracedComm):
    def all_reduce(self, tensor, group, op=None):
        super().all_reduce(tensor, group, op)
        if self.rank == 2 and tensor.dtype == torch.int8:
            tensor[517] += 1
        if self.rank == 1 and tensor.dtype == torch.bfloat16:
            tensor[3] = float("nan")

    def broadcast(self, tensor, root, group):
        other = group.ranks[(group.ranks.index(root) + 1) % len(group)]
        super().broadcast(tensor, other if root == 3 and tensor.numel() == 1 else root, group)

    def all_gather(self, out, tensor, group):
        kept = out.clone()
        super().all_gather(out, tensor, group)
        if self.rank == 1 and tensor.dtype == torch.uint8:
            out[-100:] = kept[-100:]
        if tensor.numel() == 1 and len(group) == 4:
            out[[1, 2]] = out[[2, 1]]

    def all_to_all(self, out, tensor, group):
        super().all_to_all(out, tensor.view(len(group), -1).flip(0).flatten(), group)

    def reduce(self, tensor, root, group):
        if self.rank == 1 and root != 1:
            tensor.zero_()
        super().reduce(tensor, root, group)

    def reduce_scatter(self, out, tensor, group):
        super().reduce_scatter(out, tensor, group)
        if out.dtype == torch.float64:
            out.copy_(out.to(torch.int8) // 2 * 2)

    def recv(self, tensor, peer):
        super().recv(tensor, peer)
        if self.rank == 0:
            tensor.fill_(7)
"""

# Element i of rank r is (7 i + 3 r) mod 11 + 1: the first of ranks 0 to 3 is 1, 4, 7, 10.
EXPECTED_EVENTS = {
    "one element of a sum is wrong on one rank": {
        "rank": 2,
        "op": "all_reduce",
        "dtype": "int8",
        "numel": 1021,
        "index": 517,
        "wrong": 1,
    },
    "not a number": {"rank": 1, "op": "all_reduce", "dtype": "bfloat16", "index": 3, "got": "nan", "wrong": 1},
    "another root": {"op": "broadcast", "root": 3, "index": 0, "expected": 10.0, "got": 1.0, "numel": 1},
    "a transfer that stops early": {
        "rank": 1,
        "op": "all_gather",
        "dtype": "uint8",
        "gid": 0,
        "wrong": 100,
        "numel": 4 * 1021,
        "index": 4 * 1021 - 100,
    },
    "two ranks that changed places": {
        "op": "all_gather",
        "numel": 4,
        "index": 1,
        "wrong": 2,
        "expected": 4.0,
        "got": 7.0,
    },
    "pieces in another order": {"op": "all_to_all", "dtype": "int32", "index": 0},
    "a sum that lacks a rank": {
        "rank": 3,
        "op": "reduce",
        "root": 3,
        "dtype": "float32",
        "expected": 22.0,
        "got": 18.0,
    },
    "bits that are lost on the way": {"op": "reduce_scatter", "dtype": "float64"},
    "a message from the wrong neighbour": {"rank": 0, "op": "send_recv", "expected": 10.0, "got": 7.0, "index": 0},
}


@pytest.fixture(scope="module")
def spoilt() -> Ranks:
    return drilled(4, SPOILT)


@pytest.mark.parametrize("name", EXPECTED_EVENTS)
def test_a_wrong_value_is_told_with_its_place(spoilt: Ranks, name: str) -> None:
    assert spoilt.of("wrong", **EXPECTED_EVENTS[name])


def test_nothing_else_is_called_wrong(spoilt: Ranks) -> None:
    assert not [event for event in spoilt.of("wrong") if event["op"].startswith("all_reduce ")]
    assert {event["dtype"] for event in spoilt.of("wrong", op="all_reduce")} == {"int8", "bfloat16"}
    assert {event["rank"] for event in spoilt.of("wrong", op="send_recv")} == {0}
    assert not spoilt.of("wrong", rank=1, op="reduce", root=1, gid=1)
    assert len(spoilt.of("done")) == 4


def test_what_a_backend_lacks_is_told_once_and_left_out() -> None:
    lacking = """
        class TracedComm(TracedComm):
            def reduce_scatter(self, out, tensor, group):
                if out.dtype == torch.float64:
                    raise RuntimeError("Unsupported data type for HCCL process group")
                super().reduce_scatter(out, tensor, group)
    """
    ranks = drilled(2, lacking)
    assert [
        (event["rank"], event["gid"]) for event in sorted(ranks.of("unsupported"), key=lambda each: each["rank"])
    ] == [
        (0, 0),
        (1, 0),
    ]
    assert ranks.of(
        "unsupported", op="reduce_scatter", dtype="float64", text="Unsupported data type for HCCL process group"
    )
    assert len(ranks.of("done")) == 2
    assert not ranks.of("wrong")


def test_any_other_error_ends_the_rank() -> None:
    failing = """
        class TracedComm(TracedComm):
            def all_gather(self, out, tensor, group):
                raise RuntimeError("Connection closed by peer, remote operation not supported")
    """
    ranks = drilled(2, failing)
    assert len(ranks.of("error", stage="collectives")) == 2
    assert not ranks.of("unsupported")


def test_large_sizes_are_left_out_when_small_ones_take_long() -> None:
    slow = """
        class TracedComm(TracedComm):
            def all_reduce(self, tensor, group, op=None):
                if tensor.numel() == 1 << 18:
                    time.sleep(0.1)
                super().all_reduce(tensor, group, op)
    """
    ranks = drilled(2, slow, max_bytes=1 << 24, budget=10.0)
    # 16 MB would take 16 times the 0.1 s of 1 MB, and a twentieth of the budget is 0.5 s.
    assert {event["bytes"] for event in ranks.of("speed")} <= {4, 1 << 20}
    assert not ranks.of("speed", bytes=1 << 24)


@pytest.mark.parametrize("world", [1, 2, 5, 8, 11, 12, 64, 1000])
def test_no_two_ranks_of_any_world_send_the_same_and_sums_are_small(world: int) -> None:
    code = worker()
    pattern = code["TestPattern"](world)
    periods = [pattern.period_of(rank).tolist() for rank in range(world)]
    assert len(set(map(tuple, periods))) == world
    assert max(map(sum, zip(*periods, strict=True))) <= 66
    if world <= 11:
        assert periods[-1] == [(7 * i + 3 * (world - 1)) % 11 + 1 for i in range(11)]


def test_a_sum_of_one_element_tells_whose_part_of_it_is_lost_or_has_another_exponent() -> None:
    """And no sum of several parts looks like that when it is lost, or has another exponent or sign itself."""
    value = worker()["lone_value"]
    lone = [value(rank) for rank in range(64)]
    assert len(set(lone)) == 64 and all(each % 2 for each in lone) and sum(lone) < 1 << 24
    factors = [Fraction(0), *(sign * Fraction(2) ** power for sign in (1, -1) for power in range(-24, 25))]
    for world in range(2, 12):
        explained = {each * (factor - 1) for each in lone[:world] for factor in factors if factor != 1}
        for first in range(world):
            for count in range(2, world + 1):
                part = sum(lone[(first + place) % world] for place in range(count))
                assert explained.isdisjoint(part * (factor - 1) for factor in factors if factor != 1)


def test_partitions_are_found_once_each() -> None:
    plan = {"places": [{}] * 8, "layouts": [{"dp": 8}, {"dp": 2, "tp": 4}, {"pp": 2, "dp": 4}, {"tp": 8}]}
    assert [(name, len(groups)) for name, groups in worker()["partitions"](plan)] == [
        ("tp4/dp4", 2),
        ("dp2/pp2", 4),
    ]


@pytest.mark.parametrize(
    ("ranks", "output"),
    [([0, 4], "0,4"), ([0, 1, 2, 3], "0-3"), ([1, 3, 5, 7], "1-7/2"), ([0, 1, 3], "0,1,3"), ([6], "6")],
)
def test_ranks_in_few_letters(ranks: list[int], output: str) -> None:
    assert worker()["format_ranks"](ranks) == output

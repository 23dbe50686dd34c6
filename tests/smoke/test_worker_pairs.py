"""Who exchanges with whom, and which pairs are measured once more."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from tests.smoke.judged_ranks import outcome_of
from tests.smoke.ranks import Ranks, worker

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 31, 32])
def test_up_to_32_all_meet_once(count: int) -> None:
    rounds = list(worker()["round_robin"](count))
    met_hosts = [pair for pairs in rounds for pair in pairs]
    assert sorted(met_hosts) == sorted(combinations(range(count), 2))
    assert len(rounds) == (count - 1 if count % 2 == 0 else count if count > 1 else 1)
    for pairs in rounds:
        assert len({entry for pair in pairs for entry in pair}) == 2 * len(pairs)
        assert len(pairs) == count // 2


@pytest.mark.parametrize("count", [33, 256, 1001])
def test_more_meet_in_a_few_rounds(count: int) -> None:
    rounds = list(worker()["round_robin"](count, seed=5))
    assert len(rounds) == count.bit_length() + 2
    assert rounds == list(worker()["round_robin"](count, seed=5)), "all ranks must come to the same"
    met_hosts = [pair for pairs in rounds for pair in pairs]
    assert len(set(met_hosts)) == len(met_hosts) == (count // 2) * len(rounds)


def test_the_first_rank_of_each_host_meets_the_others() -> None:
    ranks = Ranks(5, ["pairs"], hosts=["a", "a", "b", "b", "c"])
    met_hosts = {(event["rank"], event["peer"], event["round"]) for event in ranks.of("pair", confirm=False)}
    assert {(rank, peer) for rank, peer, _ in met_hosts} == {(0, 2), (2, 0), (0, 4), (4, 0), (2, 4), (4, 2)}
    assert len({turn for *_, turn in met_hosts}) == 3
    assert len(ranks.of("done")) == 5
    first = ranks.of("pair", confirm=False)
    assert all(2 <= len(event["seconds"]) <= worker()["FIRST_EXCHANGES"] for event in first)
    assert all(event["bytes"] == 1 << 20 for event in first)


DETAIL = """
os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
import torch.distributed
torch.distributed.set_debug_level_from_env()
"""


def test_where_torch_compares_the_numbers_of_calls_messages_are_none_of_them() -> None:
    ranks = Ranks(3, ["pairs", "teardown"], DETAIL, hosts=["a", "a", "b"])
    assert len(ranks.of("done")) == 3, ranks.error_output


SLOW = """
class TracedComm(TracedComm):
    def exchange(self, out, tensor, peer):
        if {self.rank, peer} == {1, 3} and tensor.numel() > 1:
            time.sleep(0.1)
        super().exchange(out, tensor, peer)
"""


def test_a_slow_pair_is_measured_again_alone() -> None:
    ranks = Ranks(4, ["pairs"], SLOW, max_bytes=1 << 16, hosts="abcd")
    again = ranks.of("pair", confirm=True)
    assert {(1, 3), (3, 1)} <= {(event["rank"], event["peer"]) for event in again}
    for event in ranks.of("pair"):
        assert event["bytes"] == 1 << 16
        if {event["rank"], event["peer"]} == {1, 3}:
            assert min(event["seconds"]) > 0.1
            assert 2 <= len(event["seconds"]) <= (10 if event["confirm"] else 8), "0.1 s each, a second in all"
    assert max(len(event["seconds"]) for event in again) > 5


SLOW_HOST = """
MOST_AGAIN = 8

def pause_before(attempt, spent, allowed):
    return 0.0 if attempt < len(CONFIRM_AT) else None

_plain_measure = measure_pair
_attempt = [0]

def measure_pair(ctx, pair, number, nbytes, attempt=0, control=False):
    _attempt[0] = attempt
    return _plain_measure(ctx, pair, number, nbytes, attempt, control)

class TracedComm(TracedComm):
    def exchange(self, out, tensor, peer):
        if 1 in (self.rank, peer) and _attempt[0] < {quiet}:
            time.sleep(0.05)
        super().exchange(out, tensor, peer)
"""


@pytest.mark.parametrize("quiet", [1, 2, 3, 9])
def test_a_slow_host_is_measured_again_at_three_times(quiet: int) -> None:
    """``quiet``: the confirmation by which what kept it busy is over; it is slow only where that is none of them."""
    ranks = Ranks(4, ["pairs"], SLOW_HOST.format(quiet=quiet), max_bytes=1 << 16, hosts="abcd")
    of_the_host = [event for event in ranks.of("pair", control=False) if 1 in (event["rank"], event["peer"])]
    assert all(min(event["seconds"]) > 0.05 for event in of_the_host if event["attempt"] < quiet)
    attempts = {event["attempt"] for event in of_the_host}
    assert attempts >= set(range(min(quiet, 3) + 1))
    assert not outcome_of("smoke_link_slow", ranks, "abcd").findings
    slow_hosts = [finding.hosts for finding in outcome_of("smoke_host_slow", ranks, "abcd").findings]
    assert slow_hosts == ([("b",)] if quiet == 9 else [])


def test_all_pairs_of_a_host_that_is_a_little_slow_are_measured_again() -> None:
    """Half of what makes a single pair suspected: only together they stand out."""
    schedule = list(worker()["round_robin"](4))
    times = {
        rank: [1.25 if 2 in pair else 1.0 for pairs in schedule for pair in pairs if rank in pair] for rank in range(4)
    }
    assert {pair for pair, _ in worker()["slow_pairs"](schedule, times)} == {(0, 2), (1, 2), (2, 3)}
    alike = {rank: [1.0 + rank / 100] * 3 for rank in range(4)}
    assert worker()["slow_pairs"](schedule, alike) == []


def test_of_three_hosts_both_pairs_of_the_slow_one_are_measured_again() -> None:
    """They are most of the pairs, so that no pair is far above most: times of a real run behind 200 Mbit/s."""
    schedule = list(worker()["round_robin"](3))
    seconds = {(0, 1): 0.0438, (0, 2): 0.0019, (1, 2): 0.0427}
    times = {rank: [seconds.get(pair, 0.0) for pairs in schedule for pair in pairs] for rank in range(3)}
    assert {pair for pair, _ in worker()["slow_pairs"](schedule, times)} == {(0, 1), (1, 2)}


@pytest.mark.parametrize("hosts", [4, 33, 256])
def test_of_a_large_fleet_the_slow_rank_alone_is_suspected(hosts: int) -> None:
    dice = Random(hosts)
    pairs = [pair for turn in worker()["round_robin"](hosts) for pair in turn]
    seconds = {pair: dice.uniform(1.0, 1.05) * (1.3 if 3 in pair else 1.0) for pair in pairs}
    assert worker()["pairs_of_slow_ends"](seconds) == {pair for pair in pairs if 3 in pair}


def test_what_is_as_quick_as_others_in_a_confirmation_is_not_measured_once_more() -> None:
    suspected = [((0, 1), 0), ((0, 2), 1)]
    by_rank = [[[3.0, 0.0], [1.0, 0.0]], [[3.1, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.9, 0.0]], [[0.0, 0.9], [0.0, 1.1]]]
    assert worker()["still_slow"](suspected, by_rank) == [((0, 1), 0)]
    alone = [[[3.0, 0.0], [1.0, 0.0]]]
    assert worker()["still_slow"](suspected, alone) == suspected, "there is nothing to compare them with"


@pytest.mark.parametrize(
    ("attempt", "spent", "allowed", "wait"),
    [
        (1, 0.1, 5.0, 0.5),
        (2, 0.7, 5.0, 1.1),
        (1, 1.0, 5.0, 0.0),
        (3, 1.9, 5.0, None),  # these were all
        (1, 2.0, 9.0, 0.0),  # the first one lasted as long as all were to be apart: what is slow takes long
        (1, 0.5, 1.0, None),  # the second one would end too late
    ],
)
def test_confirmations_are_apart_within_what_the_budget_allows(
    attempt: int, spent: float, allowed: float, wait: float | None
) -> None:
    assert worker()["pause_before"](attempt, spent, allowed) == (wait if wait is None else pytest.approx(wait))


@pytest.mark.parametrize(("seconds", "count"), [(0.001, 1000.0), (0.1, 10.0), (0.3, 6.0), (0.8, 2.5), (4.0, 0.5)])
def test_more_exchanges_than_the_fewest_fit_into_a_second(seconds: float, count: float) -> None:
    assert worker()["exchanges_within"](seconds) == pytest.approx(count)


def test_suspects_are_pairs_far_above_most_the_worst_first() -> None:
    schedule = list(worker()["round_robin"](4))
    times = {rank: [1.0, 1.0, 1.0] for rank in range(4)}
    for turn, pairs in enumerate(schedule):
        for low, high in pairs:
            if (low, high) == (0, 2):
                times[low][turn] = 9.0  # either side may have seen it
            if (low, high) == (1, 3):
                times[high][turn] = 2.6
            if (low, high) == (2, 3):
                times[low][turn] = 1.4
    result = worker()["slow_pairs"](schedule, times)
    assert [pair for pair, _ in result] == [(0, 2), (1, 3)]
    assert all(pair in schedule[turn] for pair, turn in result)


def test_alone_there_is_nobody_to_meet() -> None:
    assert not Ranks(1, ["pairs"]).of("pair")
    assert not Ranks(3, ["pairs"]).of("pair"), "one host's CPUs"
    assert worker()["slow_pairs"]([[]], {0: [0.0]}) == []


VERY_SLOW = """
PAIR_SECONDS = MORE_SECONDS = 0.3
class TracedComm(TracedComm):
    def exchange(self, out, tensor, peer):
        if {self.rank, peer} == {1, 3} and tensor.numel() > 1:
            time.sleep(0.2)
        super().exchange(out, tensor, peer)
"""


def test_a_very_slow_pair_is_measured_fewer_times_by_both_of_its_ranks() -> None:
    """The others as often as they fit into the time, which on a busy machine is not always eight times."""
    ranks = Ranks(4, ["pairs"], VERY_SLOW, max_bytes=1 << 16, hosts="abcd")
    counts: dict[tuple[int, ...], set[int]] = {}
    for event in ranks.of("pair", confirm=False):
        counts.setdefault(tuple(sorted((event["rank"], event["peer"]))), set()).add(len(event["seconds"]))
    assert counts.pop((1, 3)) == {2}
    assert all(len(numbers) == 1 and numbers <= set(range(1, 9)) for numbers in counts.values())
    assert max(max(numbers) for numbers in counts.values()) > 2
    assert len(ranks.of("done")) == 4


BY_BYTES = """
class TracedComm(TracedComm):
    def exchange(self, out, tensor, peer):
        if 2 in (self.rank, peer):
            time.sleep(tensor.nbytes / 1e6)  # 1 MB/s
        super().exchange(out, tensor, peer)
"""


def test_messages_are_smaller_where_a_host_would_need_too_much_of_the_budget() -> None:
    """Of one megabyte the three rounds would take 3 s, and of a budget of 12 s one is allowed.

    On a busy machine each message takes longer, and all ranks choose smaller ones than a quarter of a megabyte.
    """
    sizes = {event["bytes"] for event in Ranks(3, ["pairs"], BY_BYTES, budget=12.0, hosts="abc").of("pair")}
    assert len(sizes) == 1
    assert sizes <= {1 << 18, 1 << 17, 1 << 16}


def test_second_measurements_end_with_what_the_budget_allows_the_slowest_pair_first() -> None:
    schedule = list(worker()["round_robin"](4))
    slow = {(0, 1): 7.0, (0, 2): 8.0, (0, 3): 9.0}
    times = {rank: [slow.get(pair, 1.0) for pairs in schedule for pair in pairs if rank in pair] for rank in range(4)}
    pairs_again = [pair for pair, _ in worker()["slow_pairs"](schedule, times)]
    assert pairs_again == [(0, 3), (0, 2), (0, 1)]
    assert [pair for pair, _ in worker()["slow_pairs"](schedule, times, 20.0)] == pairs_again[:2]
    assert [pair for pair, _ in worker()["slow_pairs"](schedule, times, 1.0)] == pairs_again[:1]


PARTED = """
class TracedComm(TracedComm):
    def all_reduce(self, tensor, group, op=None):
        super().all_reduce(tensor, group, *([op] if op is not None else []))
        tensor.add_(self.rank * 1e6)

    def all_gather(self, out, tensor, group):
        super().all_gather(out, tensor, group)
        out.add_(self.rank * 1e6)
"""


def test_wrong_collectives_do_not_part_the_ranks() -> None:
    """A bit that flipped in a collective gave one rank another size of message, and its partner the blame."""
    ranks = Ranks(3, ["pairs"], PARTED, hosts="abc")
    assert {event["bytes"] for event in ranks.of("pair")} == {1 << 20}
    assert len(ranks.of("done")) == 3


ASKED = """
class Asked:
    def __init__(self, store, comm):
        self.store, self.comm = store, comm

    def __getattr__(self, name):
        self.comm.events.emit("asked", state=STATES[self.comm.recorder.state])
        return getattr(self.store, name)

class TracedComm(TracedComm):
    @property
    def store(self):
        return self.kept and Asked(self.kept, self)

    @store.setter
    def store(self, store):
        self.kept = store

_plain_pairs = STAGE_FUNCTIONS["pairs"]

def _pairs(ctx):
    _plain_pairs(ctx)
    ctx.emit("sum", total=ctx.comm.sum_over_ranks(ctx.rank + 1), again=ctx.comm.sum_over_ranks(2))

STAGE_FUNCTIONS["pairs"] = _pairs
"""


def test_the_store_is_asked_within_recorded_calls() -> None:
    """Who waits for it waits for the host that has it: outside of a call, that is a rank which comes late by itself."""
    ranks = Ranks(3, ["pairs"], ASKED, hosts="abc")
    assert [(event["total"], event["again"]) for event in ranks.of("sum")] == [(6, 6)] * 3
    assert {event["state"] for event in ranks.of("asked")} == {"collective"}
    assert {event["rank"] for event in ranks.of("asked")} == {0, 1, 2}


SPOILT = """
calls = [0]

class TracedComm(TracedComm):
    def exchange(self, out, tensor, peer):
        super().exchange(out, tensor, peer)
        calls[0] += tensor.numel() > 1
        if tensor.numel() > 1 and {when}:
            {what}
"""
PAYLOAD = ("collectives", "pairs")
ALL_WRONG, ONE_BIT = "out += 5", "out.view(-1)[7000] ^= 1 << 20"


def who_gave_wrong_values(when: str, what: str, hosts: str) -> list[tuple[list[int], str]]:
    """The ranks and the words of each finding of the check of values."""
    ranks = Ranks(len(hosts), PAYLOAD, SPOILT.format(when=when, what=what), hosts=hosts)
    assert len(ranks.of("done")) == len(hosts), ranks.error_output
    outcome = outcome_of("smoke_collective_wrong", ranks, hosts)
    assert not outcome.crashed and not outcome.unknown
    return [(finding.values["ranks"], str(finding)) for finding in outcome.findings]


def test_what_pairs_exchange_is_compared_and_nothing_is_wrong_on_healthy_ranks() -> None:
    assert who_gave_wrong_values("False", ALL_WRONG, "abc") == []


def test_a_rank_that_has_garbage_from_every_peer_is_named() -> None:
    [(ranks, text)] = who_gave_wrong_values("self.rank == 1", ALL_WRONG, "abc")
    assert ranks == [1]
    assert "send_recv (16384 x int32, group world)" in text


def test_a_rank_whose_messages_are_wrong_on_all_peers_is_named() -> None:
    [(ranks, _)] = who_gave_wrong_values("peer == 2", ALL_WRONG, "abcd")
    assert ranks == [2]


@pytest.mark.parametrize("call", [1, 3, 6], ids=["of the sample", "first of a pair", "late"])
def test_one_bit_of_one_message_names_the_pair_and_no_other_rank(call: int) -> None:
    [(ranks, text)] = who_gave_wrong_values(f"(self.rank, calls[0]) == (0, {call})", ONE_BIT, "abcd")
    assert len(ranks) == 2 and ranks[0] == 0
    assert "a single element: a flipped bit" in text


def test_a_message_that_never_came_is_told_as_such() -> None:
    text = """
class TracedComm(TracedComm):
    def exchange(self, out, tensor, peer):
        unwritten = out.clone()
        super().exchange(out, tensor, peer)
        if self.rank == 1 and tensor.numel() > 1:
            out.copy_(unwritten)
"""
    [finding] = outcome_of("smoke_collective_wrong", Ranks(3, PAYLOAD, text, hosts="abc"), "abc").findings
    assert finding.values["ranks"] == [1]
    assert "nothing was written there" in str(finding)

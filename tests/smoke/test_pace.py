"""The rule for slow ranks, over seeded fleets: it misses few, and takes nobody for slow who is not."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.analysis.outliers.peers import MIN_TIMES, by_attempt, find_confirmed_stragglers, find_stragglers
from tests.examples import examples

Fleet = dict[int, list[list[float]]]
Noise = Callable[[random.Random], float]
FLEETS = 500


def lognormal(sigma: float) -> Noise:
    return lambda dice: dice.lognormvariate(0, sigma)


def spikes(dice: random.Random) -> float:
    """Now and then something takes ten times as long."""
    return dice.lognormvariate(0, 0.12) * (10 if dice.random() < 0.03 else 1)


def shared(dice: random.Random) -> float:
    """The other half of a core is busy from time to time, as on shared machines."""
    return dice.lognormvariate(0, 0.02) * (1.35 if dice.random() < 0.4 else 1)


def fleet(dice: random.Random, ranks: int, noise: Noise, slow: float = 1.0, count: int = 60) -> Fleet:
    """One rank may be slow: the last."""
    return {
        rank: [[0.002 * noise(dice) * (slow if rank == ranks - 1 else 1) for _ in range(count)]]
        for rank in range(ranks)
    }


@pytest.mark.parametrize(
    "noise", [lognormal(0.12), lognormal(0.02), spikes, shared], ids=["12 %", "2 %", "spikes", "shared"]
)
def test_of_a_thousand_healthy_fleets_none_has_a_slow_rank(noise: Noise) -> None:
    dice = random.Random(1)
    for ranks, fleets in ((2, 400), (4, 350), (8, 200), (64, 50)):
        for number in range(fleets if noise is spikes else fleets // 4):
            assert not find_stragglers(fleet(dice, ranks, noise)), (ranks, number)


@pytest.mark.parametrize(
    ("noise", "slow", "least"),
    [
        (lognormal(0.03), 1.15, 0.99),
        (lognormal(0.12), 1.15, 0.7),
        (lognormal(0.12), 1.2, 0.95),
        (spikes, 1.3, 0.99),
        (shared, 1.3, 0.97),
    ],
)
def test_a_slow_rank_is_found_and_no_other(noise: Noise, slow: float, least: float) -> None:
    dice, hits, runs = random.Random(2), 0, 0
    for ranks in (2, 4, 8):
        for _ in range(60):
            stragglers = find_stragglers(fleet(dice, ranks, noise, slow))
            assert set(stragglers) <= {ranks - 1}
            hits, runs = hits + bool(stragglers), runs + 1
    assert hits >= least * runs, f"{hits} of {runs}"


def test_the_ratio_and_the_confidence_are_told() -> None:
    stragglers = find_stragglers(fleet(random.Random(3), 8, lognormal(0.05), 1.3))
    assert list(stragglers) == [7]
    assert math.isclose(stragglers[7].ratio, 1.3, rel_tol=0.05)
    assert math.isclose(stragglers[7].peer_seconds, 0.002, rel_tol=0.05)
    assert stragglers[7].seconds / stragglers[7].peer_seconds == pytest.approx(stragglers[7].ratio)
    assert 0.9999 <= stragglers[7].confidence <= 1
    assert stragglers[7].peers == 7


def test_several_slow_ranks_the_slowest_first() -> None:
    record = fleet(random.Random(4), 8, lognormal(0.03))
    record[2] = [[time * 1.2 for time in record[2][0]]]
    record[5] = [[time * 1.5 for time in record[5][0]]]
    assert list(find_stragglers(record)) == [5, 2]


def test_half_of_the_ranks_may_be_slow() -> None:
    record = fleet(random.Random(5), 8, lognormal(0.03))
    for rank in range(4):
        record[rank] = [[time * 1.3 for time in record[rank][0]]]
    assert set(find_stragglers(record)) == {0, 1, 2, 3}


@pytest.mark.parametrize(("ranks", "slower"), [(3, 2), (4, 3), (5, 3), (7, 4), (7, 6), (8, 5)])
def test_where_most_take_longer_than_the_rest_nobody_is_slow(ranks: int, slower: int) -> None:
    """In a user's program the odd one may have less to do: one that skips its update, or is short of rows."""
    record = fleet(random.Random(7), ranks, lognormal(0.03))
    for rank in range(slower):
        record[rank] = [[time * 1.8 for time in record[rank][0]]]
    assert not find_stragglers(record)


def test_one_that_is_slower_than_most_is_found_beside_a_quick_one() -> None:
    record = fleet(random.Random(8), 3, lognormal(0.03))
    record[0] = [[time * 1.8 for time in record[0][0]]]
    record[1] = [[time * 3 for time in record[1][0]]]
    assert list(find_stragglers(record)) == [1]


def test_ranks_that_all_differ_have_no_slow_one() -> None:
    """What is usual between ranks is no fault of one of them."""
    record = {rank: [[0.002 * 1.1**rank] * 60] for rank in range(8)}
    assert 0 not in find_stragglers(record)
    spread = {rank: [[0.002 * (1 + 0.05 * (rank % 4))] * 60] for rank in range(16)}
    assert not find_stragglers(spread)


def test_who_runs_at_full_speed_now_and_then_is_disturbed_not_slow() -> None:
    record = fleet(random.Random(6), 4, lognormal(0.03))
    record[1] = [[time * (1.4 if number % 5 else 1) for number, time in enumerate(record[1][0])]]
    assert not find_stragglers(record)


def test_too_few_times_say_nothing() -> None:
    assert not find_stragglers({0: [[1.0] * (MIN_TIMES - 1)], 1: [[2.0] * (MIN_TIMES - 1)]})
    assert not find_stragglers({0: [[1.0] * 60]})
    assert not find_stragglers({})


def test_bursts_may_come_as_events_of_their_own() -> None:
    record = fleet(random.Random(7), 4, lognormal(0.03), 1.3)
    parts = {rank: [bursts[0][first : first + 6] for first in range(0, 60, 6)] for rank, bursts in record.items()}
    assert list(find_stragglers(parts)) == [3]


@settings(max_examples=examples(60), deadline=None)
@given(st.dictionaries(st.integers(0, 9), st.lists(st.lists(st.floats(), max_size=30), max_size=8), max_size=6))
def test_nothing_that_a_rank_tells_breaks_the_rule(reports: Fleet) -> None:
    assert set(find_stragglers(reports)) <= set(reports)
    attempts = by_attempt({rank: dict(enumerate(bursts)) for rank, bursts in reports.items()})
    assert set(find_confirmed_stragglers(attempts)) <= set(reports)


@pytest.mark.parametrize("huge", [1e300, 1e-300])
def test_times_that_no_rank_can_have_taken_break_nothing(huge: float) -> None:
    assert set(find_confirmed_stragglers([{0: [huge] * 20, 1: [1.0] * 20}, {0: [1.0] * 20, 1: [1.0] * 20}])) <= {0, 1}

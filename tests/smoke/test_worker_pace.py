"""Work that is measured again where a rank looks slow, and what the checks say then."""

from __future__ import annotations

import statistics
from random import Random

import pytest

from doctor.analysis.outliers.peers import find_confirmed_stragglers
from tests.smoke.judged_ranks import outcome_of
from tests.smoke.ranks import Ranks, worker

pytestmark = pytest.mark.torch
HOSTS = "aabb"
STEADY = """
_attempt = [0]

def timed_work(ctx, work_by_kind):
    \"\"\"Of each attempt the same times: a busy machine makes no rank slow in these tests.\"\"\"
    dice = random.Random(10 * ctx.rank + _attempt[0])
    slow = {{"input": 1.0, "compute": 1.0, {kind!r}: {ratio} if ctx.rank == 3 and _attempt[0] < {over} else 1.0}}
    _attempt[0] += 1
    return {{kind: [slow[kind] * 0.001 * dice.lognormvariate(0, 0.02) for _ in range(60)] for kind in work_by_kind}}
"""
AT_ONCE = """
def pause_before(attempt, spent, allowed):
    return 0.0 if attempt < len(CONFIRM_AT) else None
"""


def attempts(ranks: Ranks) -> set[int]:
    numbers = {event["attempt"] for event in ranks.of("pace")}
    assert all(len(ranks.of("pace", attempt=number)) == ranks.world for number in numbers)
    return numbers


@pytest.mark.parametrize("kind", ["compute", "input"])
@pytest.mark.parametrize("over", [1, 2, 3, 9])
def test_a_rank_that_looks_slow_is_measured_again_until_it_does_not(over: int, kind: str) -> None:
    """``over``: the measurement by which what slowed the rank is over; it is slow only where that is none of them."""
    ranks = Ranks(4, ["pace"], AT_ONCE + STEADY.format(kind=kind, ratio=1.4, over=over), hosts=HOSTS)
    assert attempts(ranks) == set(range(min(over, 3) + 1))
    name, other = ("smoke_rank_slow", "smoke_input_slow")[:: 1 if kind == "compute" else -1]
    findings = outcome_of(name, ranks, HOSTS).findings
    assert [finding.values["ranks"] for finding in findings] == ([[3]] if over == 9 else [])
    assert not outcome_of(other, ranks, HOSTS).findings


def test_ranks_that_are_alike_are_measured_once() -> None:
    ranks = Ranks(4, ["pace"], STEADY.format(kind="compute", ratio=1.05, over=9), hosts=HOSTS)
    assert attempts(ranks) == {0}
    outcome = outcome_of("smoke_rank_slow", ranks, HOSTS)
    assert outcome.complete and not outcome.findings


def test_measurements_are_apart() -> None:
    ranks = Ranks(4, ["pace"], STEADY.format(kind="compute", ratio=1.4, over=9))
    assert attempts(ranks) >= {0, 1}  # four, but where a measurement takes seconds
    assert ranks.wall > 1.8


def test_real_work_that_is_always_slow_is_named() -> None:
    slow = """
    _plain_work = compute_work

    def compute_work(ctx, factors):
        time.sleep(0.005 * (ctx.rank == 1))
        _plain_work(ctx, factors)
    """
    ranks = Ranks(3, ["pace"], slow)
    assert attempts(ranks) >= {0, 1}
    (finding,) = outcome_of("smoke_rank_slow", ranks, ["here"] * 3).findings
    assert finding.values["ranks"] == [1]


def pace_events(*usual: tuple[float, float] | None, models: str = "") -> list[dict[str, object]]:
    return [{"model": models[rank : rank + 1], "usual": {"compute": each}} for rank, each in enumerate(usual)]


@pytest.mark.parametrize(
    ("ranks", "slow"),
    [
        (pace_events((1.0, 0.9), (1.2, 1.1)), {1}),
        (pace_events((1.0, 0.9), (1.2, 0.9)), set()),  # as quick as the other now and then: it was disturbed
        (pace_events((1.0, 0.9), (1.0, 1.1)), set()),
        (pace_events((1.0, 0.9), None, (1.3, 1.2)), {2}),  # of one the times are not known
        (pace_events((1.0, 0.9), (2.0, 1.9), models="ab"), set()),  # another device
        (pace_events((1.0, 0.9), (2.0, 1.9), (1.0, 0.9), (2.3, 2.2), models="abab"), {3}),
        (pace_events((1.0, 0.9), (1.0, 0.9), (1.3, 1.2), (1.3, 1.2)), {2, 3}),
        (pace_events((1.0, 0.9)), set()),
        ([], set()),
    ],
)
def test_who_looks_slow(ranks: list[dict[str, object]], slow: set[int]) -> None:
    assert worker()["slow_by_work"](ranks, {"compute": 1.1}) == ({"compute": slow} if slow else {})


def test_whom_the_checks_would_name_looks_slow_to_the_ranks() -> None:
    """What is not measured again is not named, so that the ranks have to be the more suspicious of the two."""
    dice, named = Random(11), 0
    for _ in range(300):
        world, noise = dice.choice([2, 3, 4, 8]), dice.choice([0.02, 0.05, 0.12])
        guilty = {dice.randrange(world): dice.uniform(1.1, 1.4)}
        times = {
            rank: [guilty.get(rank, 1.0) * dice.lognormvariate(0, noise) for _ in range(60)] for rank in range(world)
        }
        usual = [worker()["usual_and_quick"](seconds) for seconds in times.values()]
        looks_slow = worker()["slow_by_work"](pace_events(*usual), {"compute": worker()["LOOKS_SLOW"]}).get(
            "compute", set()
        )
        slow = set(find_confirmed_stragglers([times, times]))
        named += len(slow)
        assert slow <= looks_slow
    assert named > 150


def test_bursts_of_other_programs_make_no_rank_slow() -> None:
    """Rank 0 is slowed for a moment, its quickest work as well; one moment alone named it in most of these runs."""
    dice, alone, runs = Random(12), 0, 300
    for _ in range(runs):
        world, worst = dice.choice([2, 4, 8]), dice.uniform(1.2, 2.0)
        last = dice.choice([1, 2, 3])
        measurements = [
            {
                rank: [
                    (worst if rank == 0 and number < last else 1.0) * 0.001 * dice.lognormvariate(0, 0.05)
                    for _ in range(60)
                ]
                for rank in range(world)
            }
            for number in range(last + 1)
        ]
        alone += 0 in find_confirmed_stragglers(measurements[:1] * 2)
        assert not find_confirmed_stragglers(measurements)
    assert alone > 0.9 * runs


@pytest.mark.parametrize(("slow", "noise", "least"), [(1.15, 0.03, 0.99), (1.15, 0.12, 0.75), (1.3, 0.12, 0.99)])
def test_a_slow_rank_is_found_by_all_measurements_together(slow: float, noise: float, least: float) -> None:
    dice, hits = Random(13), []
    for world in (2, 4, 8):
        for _ in range(40):
            measurements = []
            for _ in range(4):
                level = dice.uniform(0.8, 1.6)  # what slows all of them for a moment
                measurements.append(
                    {
                        rank: [
                            level * (slow if rank == world - 1 else 1) * dice.lognormvariate(0, noise)
                            for _ in range(60)
                        ]
                        for rank in range(world)
                    }
                )
            stragglers = find_confirmed_stragglers(measurements)
            assert set(stragglers) <= {world - 1}
            hits.append(bool(stragglers))
    assert statistics.fmean(hits) >= least

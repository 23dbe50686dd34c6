"""Each rank's own work in each step, from when it enters collectives."""

from __future__ import annotations

import pytest

from doctor.analysis.outliers.peers import find_stragglers
from doctor.watch.pace import Entry, StepPace


def paced(work: dict[int, int], steps: int, start: int = 0) -> StepPace:
    """Steps in which each rank works for so many microseconds, and all then meet in two collectives."""
    pace, now = StepPace(), start
    for step in range(steps):
        for rank, microseconds in work.items():
            first = Entry(0, 2 * step + 1, step, (now + microseconds) % 2**32)
            second = Entry(0, 2 * step + 2, step, (now + max(work.values()) + 50) % 2**32)
            pace.add(rank, [first, second])
        now += max(work.values()) + 50
    return pace


@pytest.mark.parametrize("start", [0, 2**32 - 500_000])
def test_what_a_rank_waits_for_the_others_is_not_its_work(start: int) -> None:
    work = paced({0: 1000, 1: 3000, 2: 1000}, 20, start).work()
    assert {rank: set(times) for rank, times in work.items()} == {0: {0.00105}, 1: {0.00305}, 2: {0.00105}}
    assert list(find_stragglers({rank: [times] for rank, times in work.items()})) == [1]


def test_equal_ranks_are_not_told_apart() -> None:
    work = paced(dict.fromkeys(range(4), 1000), 40).work()
    assert find_stragglers({rank: [times] for rank, times in work.items()}) == {}


def test_one_rank_alone_has_nobody_to_meet() -> None:
    assert paced({0: 1000}, 10).work() == {}

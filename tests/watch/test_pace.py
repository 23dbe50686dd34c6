"""Each rank's own work in each step, from when it enters collectives."""

from __future__ import annotations

import pytest

from doctor.analysis.outliers.peers import OwnWork, stragglers_by_part
from doctor.watch.pace import Entry, StepPace, StepTimes


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
    assert {rank: set(own.compute) for rank, own in work.items()} == {0: {0.00105}, 1: {0.00305}, 2: {0.00105}}
    slow = stragglers_by_part(work)
    assert list(slow["compute"]) == [1] and not slow["input"]


def test_equal_ranks_are_not_told_apart() -> None:
    work = paced(dict.fromkeys(range(4), 1000), 40).work()
    assert not any(stragglers_by_part(work).values())


def test_one_rank_alone_has_nobody_to_meet() -> None:
    assert paced({0: 1000}, 10).work() == {}


def test_the_part_that_makes_a_rank_late_is_named_with_its_seconds() -> None:
    pace = paced({0: 1000, 1: 3000, 2: 1000}, 20)
    for rank, waited in {0: 100, 1: 1900, 2: 100}.items():
        pace.add_times(rank, [StepTimes(step + 1, 0, 0, waited, 0, 0) for step in range(20)], 0.0)
    slow = stragglers_by_part(pace.work())
    assert not slow["compute"] and list(slow["input"]) == [1]
    assert (slow["input"][1].seconds, slow["input"][1].peer_seconds) == (0.0019, 0.0001)


@pytest.mark.parametrize(("waited", "named"), [(0, []), (10, []), (1900, [1])])
def test_on_a_device_a_rank_is_slow_by_its_input_alone(waited: int, named: list[int]) -> None:
    """Source: healthy ranks on an H200, torch 2.11: the one that reads its loss each third step was called slow."""
    pace = paced({0: 1000, 1: 3000, 2: 1000}, 20)
    for rank in range(3):
        times = 20 + waited * (rank == 1)
        pace.add_times(rank, [StepTimes(step + 1, 0, 0, times, 0, 0) for step in range(20)], 0.0)
    slow = stragglers_by_part(pace.work(on_device=True))
    assert (list(slow["input"]), list(slow["compute"])) == (named, [])


def test_input_that_is_longer_beside_much_longer_computing_accuses_nobody_of_input() -> None:
    """Of hundreds of milliseconds, a wait of one that is three times the peers' is no reason."""
    work = {rank: OwnWork((0.001 if rank else 0.003,) * 20, (0.5,) * 20) for rank in range(4)}
    assert not any(stragglers_by_part(work).values())
    work[2] = OwnWork((0.002,) * 20, (0.9,) * 20)
    assert {part: list(ranks) for part, ranks in stragglers_by_part(work).items()} == {"input": [], "compute": [2]}
    work[2] = OwnWork((), (0.9,) * 20)  # a run that was saved before input was measured
    assert list(stragglers_by_part(work)["compute"]) == [2]


def test_what_a_rank_waits_for_a_cpu_is_not_its_own() -> None:
    """Steps of 2 ms on a busy host: of two ranks one always waits more."""
    usual, late = OwnWork((), (0.0019,) * 40), OwnWork((), (0.0029,) * 40, starved=0.0008)
    assert stragglers_by_part({0: usual, 1: late})["compute"] == {}
    for slow in (OwnWork((), (0.0029,) * 40, starved=0.0001), OwnWork((), (0.5,) * 40, starved=0.0008)):
        assert list(stragglers_by_part({0: usual, 1: slow})["compute"]) == [1]


def test_on_a_busy_host_a_rank_is_slow_that_takes_three_times_as_long_beside_what_it_waits_for_a_cpu() -> None:
    """Whoever waits less for a CPU beside it is innocent, and so is who takes longer by that wait alone."""
    usual = OwnWork((), (0.08,) * 40, starved=0.01)
    for own, named in ((OwnWork((), (0.43,) * 40, 0.1), [1]), (OwnWork((), (0.2,) * 40, 0.03), []),
                       (OwnWork((), (0.43,) * 40, 0.2), [])):  # fmt: skip
        assert list(stragglers_by_part({0: usual, 1: own, 2: usual})["compute"]) == named


def test_a_step_is_gathered_with_what_it_waited_for_a_cpu() -> None:
    pace = paced({0: 1000, 1: 3000}, 20)
    for step in range(20):
        for rank in (0, 1):
            pace.add_times(rank, [StepTimes(step + 1, 0, 0, 0, 0, 0)], 0.0005 * rank * step)
        pace.split_steps()
    work = pace.work()
    assert (work[0].starved, round(work[1].starved, 5)) == (0.0, 0.0)

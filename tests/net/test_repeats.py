"""What looks slow is measured again beside a path that does not: what slows both is not the path's."""

from __future__ import annotations

import pytest

from doctor.net.matrix import PathSpeed
from doctor.net.run.repeats import as_disturbed, is_certain, is_disturbed, path_beside, path_speed
from doctor.net.run.sessions import SpeedReport, StreamReport

SPEEDS = [
    PathSpeed(source, target, 1e-4, 2e-4, 1e8, 2e8, 0, 1 << 20)
    for source in range(4)
    for target in range(4)
    if source != target
]


def test_the_path_beside_shares_the_source_and_the_target_in_turns() -> None:
    beside = [path_beside((1, 2), SPEEDS, {(1, 2)}, turn) for turn in range(4)]
    assert [(speed.source, speed.target) for speed in beside if speed] == [(1, 0), (0, 2), (1, 3), (3, 2)]


def test_it_is_none_that_looks_slow_nor_the_way_back() -> None:
    suspected = {(1, 2), (1, 0), (1, 3)}
    for turn in range(12):
        beside = path_beside((1, 2), SPEEDS, suspected, turn)
        assert beside is not None
        assert (beside.source, beside.target) not in {*suspected, (2, 1)}
    assert path_beside((1, 2), SPEEDS, {(speed.source, speed.target) for speed in SPEEDS}, 0) is None


def test_its_first_measurement_is_what_it_is_compared_with() -> None:
    later = PathSpeed(1, 0, 1e-3, 2e-3, 1e6, 2e6, 0, 1 << 20)
    assert path_beside((1, 2), [*SPEEDS, later], {(1, 2)}, 0) == PathSpeed(1, 0, 1e-4, 2e-4, 1e8, 2e8, 0, 1 << 20)


@pytest.mark.parametrize(
    ("now", "disturbed"),
    [
        (PathSpeed(1, 0, 1.1e-4, None, 0.9e8, 1.8e8), False),
        (PathSpeed(1, 0, 0.5e-4, None, 3e8, 3e8), False),
        (PathSpeed(1, 0, 1e-4, None, 0.5e8, 2e8), True),
        (PathSpeed(1, 0, 1e-4, None, 1e8, 1e8), True),
        (PathSpeed(1, 0, 2e-4, None, 1e8, 2e8), True),
        (PathSpeed(1, 0), False),
    ],
)
def test_a_path_that_is_slower_than_at_first_is_disturbed(now: PathSpeed, *, disturbed: bool) -> None:
    assert is_disturbed(SPEEDS[3], now) is disturbed


def test_of_a_disturbed_measurement_what_no_busy_host_changes_remains() -> None:
    parts = {name: StreamReport(10**6, 0.5, 7, arrival=rate) for name, rate in (("single", 9e8), ("multi", 0.0))}
    disturbed = as_disturbed(SpeedReport(2, latencies=[3e-4, 1e-4], **parts))
    speed = path_speed(1, disturbed)
    assert (speed.waited, speed.arrival_single, speed.arrival_multi) == (1.0, 9e8, None)
    assert (speed.latency_least, speed.retransmissions, speed.bytes) == (1e-4, 14, 2 * 10**6)
    assert is_certain(disturbed)
    assert not is_certain(SpeedReport(2, latencies=[1e-4], single=StreamReport(10**6, 0.5, 7)))

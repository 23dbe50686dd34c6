"""The soak stage minute by minute: who is slow for a part of it, what became slower, temperatures and links beside."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from doctor.engine.smoke_summary import HostTemperature, LinkErrors, SoakMinute
from doctor.facts.rdma import ERROR_COUNTERS
from doctor.facts.smoke.collectives import SoakCounts, SoakInterval
from doctor.report.layout.smoke_section import MOST_LINES, minute_lines
from doctor.smoke.model import SmokeRun
from doctor.smoke.results.figures import soak_figures
from doctor.smoke.speed.soak_drift import fleet_drift, slow_in_soak
from tests.checks.smoke import collectives, findings_of, pace, page, ran
from tests.smoke.judged_ranks import outcome_of
from tests.smoke.ranks import Ranks, worker

ALIKE = tuple(0.002 * (1 + 0.001 * (piece * 13 % 11)) for piece in range(40))
MINUTES = 12


def noisy(dice: random.Random, seconds: float, sigma: float, count: int = 30) -> tuple[float, ...]:
    return tuple(seconds * dice.lognormvariate(0, sigma) for _ in range(count))


def soak(
    run: SmokeRun,
    slow: Mapping[tuple[int, int], float] = {},
    fleet: Sequence[float] = (1.0,) * MINUTES,
    sigma: float = 0.05,
    seed: int = 1,
    **more: Any,
) -> list[SoakInterval]:
    """``slow``: times as long, by rank and minute. ``fleet``: times as long the collective takes, by minute."""
    dice = random.Random(seed)
    return [
        SoakInterval(
            place.rank,
            minute,
            60.0 * minute,
            60.0,
            1000,
            0,
            noisy(dice, 0.0005 * slow.get((place.rank, minute), 1.0), sigma),
            noisy(dice, 0.01 * fleet[minute], sigma),
            1 << 20,
            **more,
        )
        for minute in range(MINUTES)
        for place in run.plan.places
    ]


def test_a_rank_that_becomes_slow_when_it_is_hot_is_named_with_the_time() -> None:
    run = ran(4, 2)
    hot = {(2, minute): 1.3 for minute in range(9, MINUTES)}
    facts = collectives(run, *soak(run, hot))
    (finding,) = findings_of("smoke_rank_slow", run, pace(run, dict.fromkeys(range(4), ALIKE)), facts)
    assert finding.hosts == ("w2",) and finding.values["ranks"] == [2]
    assert "from 540 s to 720 s of the repetition" in str(finding)
    assert "throttled" in page("smoke_rank_slow", finding)


@pytest.mark.parametrize(
    "slow",
    [
        {(2, minute): 1.3 for minute in (10, 11)},  # less than a quarter
        {(2, minute): 1.3 for minute in (3, 6, 9, 11)},  # now and then
        {(rank, minute): 1.3 for rank in range(4) for minute in range(9, MINUTES)},  # all alike
        {(2, minute): 1.04 for minute in range(MINUTES)},
    ],
)
def test_what_makes_no_rank_slow(slow: dict[tuple[int, int], float]) -> None:
    run = ran(4, 2)
    assert not slow_in_soak(collectives(run, *soak(run, slow)), {})


@pytest.mark.parametrize("sigma", [0.02, 0.12, 0.3])
def test_of_healthy_soaks_none_has_a_slow_rank_or_becomes_slower(sigma: float) -> None:
    for seed in range(60):
        run = ran((2, 4, 8)[seed % 3], 2)
        facts = collectives(run, *soak(run, sigma=sigma, seed=seed))
        assert not slow_in_soak(facts, {}) and fleet_drift(facts) is None, seed


def test_a_device_is_compared_with_its_own_kind() -> None:
    run = ran(4, 2)
    other = {(rank, minute): 3.0 for rank in (2, 3) for minute in range(MINUTES)}
    facts = collectives(run, *soak(run, other))
    assert not slow_in_soak(facts, {0: "A", 1: "A", 2: "B", 3: "B"})


def test_a_fleet_that_becomes_slower_is_said_once_the_last_quarter_shows_it() -> None:
    run = ran(4, 2)
    facts = collectives(run, *soak(run, fleet=[1.0] * 9 + [2.6] * 3))
    (finding,) = findings_of("smoke_fleet_slow", run, facts)
    assert "became 2.6" in str(finding) and "from 540 s on" in str(finding)
    for fleet in ([1.0] * 10 + [2.6] * 2, [1.0] * 9 + [1.5] * 3, [2.6] * 3 + [1.0] * 9, [1.0] * 11 + [9.0]):
        assert fleet_drift(collectives(run, *soak(run, fleet=fleet))) is None


def test_a_fleet_that_was_many_times_as_slow_for_a_while_is_said_with_the_time() -> None:
    run = ran(4, 2)
    for slow, words in (((4, 5), "from 240 s to 360 s"), ((7,), "from 420 s to 480 s")):
        fleet = [50.0 if minute in slow else 1.0 for minute in range(MINUTES)]
        (finding,) = findings_of("smoke_fleet_slow", run, collectives(run, *soak(run, fleet=fleet)))
        assert words in str(finding)
        assert fleet_drift(collectives(run, *soak(run, fleet=[min(5.0, times) for times in fleet]))) is None


def test_a_short_soak_is_not_judged_by_parts_that_it_has_not() -> None:
    run = ran(4, 2)
    few = [event for event in soak(run, fleet=[1.0, 5.0, 5.0] + [1.0] * 9) if event.number < 3]
    assert fleet_drift(collectives(run, *few)) is None


@pytest.mark.parametrize(("calls", "times", "is_said"), [(1, 40.0, True), (1, 10.0, False), (4, 5.0, True)])
def test_a_call_alone_tells_only_of_what_is_many_times_as_slow(calls: int, times: float, is_said: bool) -> None:
    run = ran(4, 2)
    events = [
        event if event.number < 9 else msgspec.structs.replace(event, reduce=event.reduce[:calls])
        for event in soak(run, fleet=[1.0] * 9 + [times] * 3)
    ]
    assert (fleet_drift(collectives(run, *events)) is not None) == is_said


def minutes_of(run: SmokeRun, events: Sequence[SoakInterval]) -> tuple[SoakMinute, ...]:
    counts = [SoakCounts(rank, {"all_reduce": 9}, {}, 720.0) for rank in range(run.plan.world)]
    figures = soak_figures(run, collectives(run, *events, *counts))
    assert figures
    return figures.minutes


def test_the_figures_of_each_minute() -> None:
    run = ran(4, 2)
    events = soak(run, sigma=0.0)
    heat = {"coretemp": 61.5, "mlx5": 70.0}
    events[0] = SoakInterval(0, 0, 0.0, 60.0, 1000, 2, (0.0005,), (0.01,), 1 << 20, heat, {"eth0 rx_errors": 3})
    first, *others = minutes_of(run, events)
    assert (first.calls, first.wrong, first.work, round(first.busbw / 1e6)) == (1000, 2, 0.0005, 157)
    assert first.temperatures == (HostTemperature("w1", 70.0),)
    assert first.link_errors == (LinkErrors("w1", "eth0 rx_errors", 3),)
    assert len(others) == MINUTES - 1 and not others[0].temperatures


def test_a_minute_as_a_line() -> None:
    minute = SoakMinute(
        60.0,
        60.0,
        1000,
        0,
        0.0005,
        3,
        0.0006,
        157e6,
        (HostTemperature("w1", 70.2),),
        (LinkErrors("w2", "eth0 rx_errors", 3),),
    )
    (line,) = minute_lines([minute], full=False)
    assert line == (
        "from 60.0 s to 2 min 0 s: 1000 collectives, no wrong result, all_reduce 157 MB/s, "
        "work 500 us, slowest 600 us (rank 3), w1 70 °C, w2 eth0 rx_errors +3"
    )
    evil = SoakMinute(0.0, 1.0, 1, 1, temperatures=(HostTemperature("\x1b[31m", 1e300),))
    assert "\x1b" not in minute_lines([evil], full=False)[0]
    many = [SoakMinute(60.0 * number, 60.0, 1, 0) for number in range(100)]
    assert len(minute_lines(many, full=False)) == MOST_LINES and len(minute_lines(many, full=True)) == 100


@pytest.mark.torch
def test_real_ranks_report_each_interval() -> None:
    ranks = Ranks(2, ["soak"], soak=1.5, hosts="ab", max_bytes=4096)
    events = ranks.of("interval")
    assert {event["rank"] for event in events} == {0, 1}
    numbers = [event["number"] for event in events if event["rank"] == 0]
    assert numbers == sorted(set(numbers)) and numbers[-1] <= 8
    assert sum(event["calls"] for event in events if event["rank"] == 0) == sum(
        ranks.of("soaked")[0]["counts"].values()
    )
    assert all(event["bytes"] == 4096 and event["compute"] and event["reduce"] for event in events)


HOST_BECOMES_SLOW = """
REPEATS, MEASURING_SHARE, MUCH_SLOWER = 1, 99.0, 1e9  # a busy machine has no part in what is measured, and when
_is_slow = []
class SoakIntervals(SoakIntervals):
    def finish_interval(self, soaked):
        if self.quickest < math.inf and RANK < 3:
            _is_slow.append(True)
            self.reduce = [9.0] * len(self.reduce)
        super().finish_interval(soaked)

def time_exchanges(ctx, peer, nbytes, repeats):
    \"\"\"Of the same times in each test, whatever else the machine does.\"\"\"
    dice = random.Random(ctx.rank + peer)
    usual = 0.01 if _is_slow and RANK in (ctx.rank, peer) else 0.001
    return [usual * dice.lognormvariate(0, 0.02) for _ in range(repeats)]

def pause_before(attempt, spent, allowed):
    return 0.0 if attempt < len(CONFIRM_AT) else None
"""


@pytest.mark.torch
@pytest.mark.parametrize(("rank", "named"), [(1, ["b"]), (9, [])])
def test_a_host_whose_network_becomes_slow_is_named_with_the_time(rank: int, named: list[str]) -> None:
    faults = HOST_BECOMES_SLOW.replace("RANK", str(rank))
    ranks = Ranks(3, ["pairs", "soak"], faults, soak=3.0, hosts="abc", max_bytes=4096)
    findings = outcome_of("smoke_host_slow", ranks, "abc").findings
    assert [finding.hosts for finding in findings] == [(host,) for host in named]
    assert all(" s of the repetition" in str(finding) for finding in findings)


SLOW_FOR_A_WHILE = (
    HOST_BECOMES_SLOW.replace("1e9", "5.0").replace("RANK < 3", "False")
    + """
class SoakIntervals(SoakIntervals):
    def finish_interval(self, soaked):
        self.quickest, self.reduce = 0.01, [0.01]
        super().finish_interval(soaked)

    def repeated(self, group, seconds, soaked):
        seconds = 1.1 if self.usual and self.number and not self.measurements else 0.01
        if seconds > 1:
            _is_slow.append(True)
        super().repeated(group, seconds, soaked)
        _is_slow.clear()
"""
)


@pytest.mark.torch
def test_a_host_whose_network_is_slow_for_a_while_is_measured_meanwhile() -> None:
    """When the interval ends, its link is as quick as before."""
    faults = SLOW_FOR_A_WHILE.replace("RANK", "1")
    ranks = Ranks(3, ["pairs", "soak"], faults, soak=3.0, hosts="abc", max_bytes=4096)
    findings = outcome_of("smoke_host_slow", ranks, "abc").findings
    assert [finding.hosts for finding in findings] == [("b",)]


BECOMES_SLOW = """
_plain_compute, _soak_began = compute_work, [0.0]
def compute_work(ctx, factors):
    if ctx.plan["soak"] and ctx.rank == 2:
        _soak_began[0] = _soak_began[0] or time.monotonic()
        if time.monotonic() - _soak_began[0] > 0.6 * ctx.plan["soak"]:
            _plain_compute(ctx, factors)
    _plain_compute(ctx, factors)
"""


@pytest.mark.full
@pytest.mark.torch
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("faults", "named"), [(BECOMES_SLOW, [2]), ("", [])])
def test_a_real_rank_that_becomes_slow(faults: str, named: list[int]) -> None:
    ranks = Ranks(4, ["pace", "collectives", "soak"], faults, soak=40.0, hosts="abcd", max_bytes=4096, seconds=250.0)
    findings = outcome_of("smoke_rank_slow", ranks, "abcd").findings
    assert [rank for finding in findings for rank in finding.values["ranks"]] == named


def test_intervals_are_minutes_fewer_and_longer_where_there_would_be_too_many() -> None:
    seconds = worker()["interval_seconds"]
    assert seconds(600.0, 8) == 60.0 and seconds(80.0, 8) == 10.0
    assert seconds(86400.0, 8) == 360.0 and seconds(86400.0, 4096) == 3600.0


def test_temperatures_of_the_tools() -> None:
    """The rows of `npu-smi info` are those that `doctor.facts.npu_table` is tested with."""
    printed = worker()["printed_temperatures"]
    table = (
        "| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|\n"
        "| Chip  Phy-ID              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |\n"
        "| 0     Ascend910           | OK            | 160.7       45                0    / 0             |\n"
        "| 0     0                   | 0000:9D:00.0  | 0           0    / 0          61609/ 65536         |\n"
    )
    assert printed("npu", table) == {"NPU 0": 45.0}
    assert printed("cuda", "41\n[N/A]\n63\n") == {"GPU 0": 41.0, "GPU 2": 63.0}
    assert printed("cuda", "NVIDIA-SMI has failed because it could not communicate with the driver\n") == {}


def test_errors_of_links_are_what_they_grew_by(monkeypatch: pytest.MonkeyPatch) -> None:
    program = worker()
    assert set(program["PORT_ERRORS"]) <= set(ERROR_COUNTERS)
    counts = iter([{"eth0 rx_errors": 5, "eth1 rx_errors": 1}, {"eth0 rx_errors": 8, "eth1 rx_errors": 1, "ib0 x": 7}])
    monkeypatch.setitem(program["Sensors"].__init__.__globals__, "link_errors", lambda: next(counts))
    assert program["Sensors"]("cpu").read()[1] == {"eth0 rx_errors": 3}

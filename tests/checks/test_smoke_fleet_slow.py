from __future__ import annotations

from pathlib import Path

import pytest

from doctor.engine.result import Outcome
from doctor.facts.smoke.further_stages import PairTimes
from doctor.smoke.model import Baseline, SpeedHistory
from doctor.smoke.programs.agent.network import interface_speeds
from doctor.smoke.results.figures import collective_speeds
from doctor.smoke.speed.link_speeds import expected_rate, slowest_line
from tests.checks.smoke import collectives, page, pairs, ran, run_check, started

NAME = "smoke_fleet_slow"


def history(times: float, runs: int = 1, world: int = 4, torch: str = "2.13") -> Baseline:
    """Runs of two hosts that were so many times as fast as `collectives` are."""
    (speed,) = collective_speeds(ran(4, 2), collectives(ran(4, 2)))
    values = tuple(speed.busbw * times * (1 + 0.01 * (run % 3)) for run in range(runs))
    return Baseline((SpeedHistory("CPU", "gloo", torch, "all_reduce", 1 << 20, world, 2, values),))


def outcome(times: float, again: float | None = None, runs: int = 1, **more: object) -> Outcome:
    """Against a baseline that was so many times as fast; ``again``: as many times as fast the second run is."""
    (speed,) = collective_speeds(ran(4, 2), collectives(ran(4, 2)))
    speeds = None if again is None else {f"all_reduce {1 << 20} 4 2": speed.busbw * again}
    run = ran(4, 2, baseline=history(times, runs), speeds_again=speeds, **more)
    return run_check(NAME, run, collectives(run), started(run))


def test_as_fast_as_before() -> None:
    assert outcome(1.3).complete and not outcome(1.3).findings


def test_a_fleet_that_is_slow_as_a_whole_in_both_runs() -> None:
    [finding] = outcome(3.0, 1.1, pressure={"w1": ("w1: steal.",)}).findings
    assert finding.hosts == ()
    assert finding.values["ratio"] == 2.73
    assert str(finding).endswith("(472 MB/s is the median of 1 runs). w1: steal.")
    assert "--save-baseline" in page(NAME, finding)


def test_what_a_second_run_does_not_show_was_a_moment() -> None:
    assert outcome(3.0, 2.8).complete and not outcome(3.0, 2.8).findings


def test_what_could_not_be_measured_again_is_unknown() -> None:
    assert "could not be measured again" in str(outcome(3.0).unknown)


@pytest.mark.parametrize(("runs", "times", "slow"), [(1, 1.4, False), (1, 1.6, True), (8, 1.25, True), (8, 1.1, False)])
def test_many_runs_tell_how_much_they_differ(runs: int, times: float, slow: bool) -> None:
    assert bool(outcome(times, 1.0, runs).findings) == slow


def test_what_cannot_be_compared_is_skipped_and_says_why() -> None:
    def reason(baseline: Baseline) -> str:
        run = ran(4, 2, baseline=baseline)
        return " ".join(run_check(NAME, run, collectives(run), started(run)).skipped.values())

    assert "no run of this size: it has 8 ranks on 2 hosts" in reason(history(1.0, world=8))
    assert "no run of CPU with gloo and torch 2.13: it has CPU with gloo and torch 2.6" in reason(
        history(1.0, torch="2.6")
    )
    assert "it has none" in reason(Baseline())
    assert run_check(NAME, ran(4, 2), collectives(ran(4, 2))).skipped


CARDS = {"w1": 10_000, "w2": 25_000}


def exchanged(
    megabytes_a_second: float, nbytes: int = 1 << 20, speeds: dict[str, int] = CARDS, early: float = 1.0
) -> Outcome:
    """Two hosts whose quickest exchange runs at this rate; ``early``: part of that time after which one end is done."""
    run = ran(4, 2, line_speeds=speeds, pressure={"w1": ("w1: steal.",)})
    seconds = nbytes / megabytes_a_second / 1e6
    times = [
        PairTimes(rank, 2 - rank, 0, nbytes, (3 * seconds * share, seconds * share))
        for rank, share in ((0, 1.0), (2, early))
    ]
    return run_check(NAME, run, collectives(run), pairs(run, times))


def test_no_pair_comes_near_what_the_cards_allow() -> None:
    [finding] = exchanged(12).findings
    assert finding.hosts == ()
    assert str(finding).startswith("the quickest exchange of any two hosts runs at 12 MB/s each way, expected 100 MB/s")
    assert str(finding).endswith("the slowest network card has 10000 Mb/s. w1: steal.")
    assert "/sys/class/net/*/speed" in page(NAME, finding)


def test_a_network_of_usual_speed_and_small_messages_are_no_reason() -> None:
    assert not exchanged(110).findings and exchanged(110).complete
    assert not exchanged(1, nbytes=4096).findings


def test_a_network_that_is_slow_in_one_direction_alone() -> None:
    """The host that sends slowly has received all, and its own message lies in buffers of its kernel."""
    [finding] = exchanged(12, early=0.001).findings
    assert finding.values["observed"] == "12 MB"


@pytest.mark.parametrize("speeds", [{}, {"w1": 10_000}])
def test_no_more_than_any_line_carries_is_expected_where_the_speed_of_a_host_is_not_known(
    speeds: dict[str, int],
) -> None:
    [finding] = exchanged(0.4, speeds=speeds).findings
    assert finding.hosts == ()
    assert "runs at 0.4 MB/s each way, expected 1.25 MB/s at least of any network. w1: steal." in str(finding)
    assert exchanged(1.5, speeds=speeds).skipped and not exchanged(1.5, speeds=speeds).findings


def test_nothing_is_expected_of_the_ranks_of_one_host() -> None:
    run = ran(4, 1)
    assert run_check(NAME, run, collectives(run), pairs(run, [PairTimes(0, 2, 0, 1 << 20, (9.0,))])).skipped


def test_floors_by_link() -> None:
    assert expected_rate("gloo", 1000) == 31.25e6
    assert expected_rate("gloo", 100_000) == 100e6
    assert expected_rate("nccl", 100_000) == expected_rate("nccl", 0) == 0
    assert expected_rate("gloo", 0) == 1.25e6


def test_an_interface_without_known_speed_leaves_the_host_unknown() -> None:
    addresses = {"eth0": ["10.0.0.1"], "eth1": ["10.1.0.1"], "docker0": ["172.17.0.1"], "eth2": []}
    assert slowest_line({"eth0": 25_000, "eth1": 10_000, "eth2": 0}, addresses) == 10_000
    assert slowest_line({"eth0": 25_000, "docker0": 0}, addresses) == 0
    assert slowest_line({}, addresses) == 0


def test_virtual_interfaces_of_this_machine_have_no_speed() -> None:
    """lo is left out, and what has no hardware is unknown, whatever its driver claims."""
    speeds = interface_speeds()
    assert "lo" not in speeds
    for name, speed in speeds.items():
        assert speed >= 0
        assert (Path("/sys/class/net") / name / "device").exists() or speed == 0

from __future__ import annotations

from pathlib import Path

import pytest

from doctor.engine.result import Outcome
from doctor.engine.smoke_summary import SmokeSummary
from doctor.facts.smoke import PairTimes
from doctor.smoke.model import Baseline
from doctor.smoke.programs.agent.network import interface_speeds
from doctor.smoke.results.figures import collective_speeds
from doctor.smoke.speed.baseline import read_baseline, save_baseline
from doctor.smoke.speed.line_rates import expected_rate, slowest_line
from tests.checks.smoke import collectives, page, pairs, ran, run_check

NAME = "smoke_fleet_slow"


def outcome(times: float, **more: object) -> Outcome:
    """Against a baseline that was so many times as fast."""
    known_collective_speeds = collective_speeds(ran(4, 2), collectives(ran(4, 2)))
    busbw = {f"{speed.op} {speed.bytes} {speed.group}": speed.busbw * times for speed in known_collective_speeds}
    run = ran(4, 2, baseline=Baseline("gloo", 2, 4, busbw), **more)
    return run_check(NAME, run, collectives(run))


def test_as_fast_as_before() -> None:
    assert outcome(1.3).complete and not outcome(1.3).findings


def test_a_fleet_that_is_slow_as_a_whole() -> None:
    [finding] = outcome(3.0, pressure={"w1": ("w1: steal.",)}).findings
    assert finding.hosts == ()
    assert finding.values["ratio"] == 3.0
    assert str(finding).endswith("expected 472 MB/s. w1: steal.")
    assert "--save-baseline" in page(NAME, finding)


def test_what_cannot_be_compared_is_skipped() -> None:
    run = ran(2, 1, baseline=Baseline("gloo", 2, 4, {}))
    assert run_check(NAME, run, collectives(run)).skipped
    assert run_check(NAME, ran(4, 2), collectives(ran(4, 2))).skipped


def test_a_baseline_is_read_as_it_was_saved(tmp_path: Path) -> None:
    speeds = collective_speeds(ran(4, 2), collectives(ran(4, 2)))
    summary = SmokeSummary("gloo", {"w1": 2, "w2": 2}, "complete", 9.0, 1.0, collective_speeds=speeds)
    save_baseline(tmp_path / "good", summary)
    assert read_baseline(tmp_path / "good").busbw[f"all_reduce {1 << 20} world"] > 0
    for text in ("{", "[]", '{"backend": "gloo"}'):
        (tmp_path / "bad").write_text(text)
        with pytest.raises(ValueError, match="expected a file of --save-baseline"):
            read_baseline(tmp_path / "bad")


def exchanged(megabytes_a_second: float, nbytes: int = 1 << 20) -> Outcome:
    """Two hosts with cards of 10 and 25 Gb/s, whose quickest exchange runs at this rate."""
    run = ran(4, 2, line_speeds={"w1": 10_000, "w2": 25_000}, pressure={"w1": ("w1: steal.",)})
    seconds = nbytes / megabytes_a_second / 1e6
    times = [PairTimes(rank, 2 - rank, 0, nbytes, (3 * seconds, seconds)) for rank in (0, 2)]
    return run_check(NAME, run, collectives(run), pairs(run, times))


def test_no_pair_comes_near_what_the_cards_allow() -> None:
    [finding] = exchanged(12).findings
    assert finding.hosts == ()
    assert str(finding).startswith("the quickest exchange of any two hosts runs at 12 MB/s each way, expected 100 MB/s")
    assert str(finding).endswith("the slowest network card has 10000 Mb/s. w1: steal.")
    assert "ethtool" in page(NAME, finding)


def test_a_network_of_usual_speed_and_small_messages_are_no_reason() -> None:
    assert not exchanged(110).findings and exchanged(110).complete
    assert not exchanged(1, nbytes=4096).findings


@pytest.mark.parametrize("speeds", [{}, {"w1": 10_000}])
def test_nothing_is_expected_where_the_speed_of_a_host_is_not_known(speeds: dict[str, int]) -> None:
    run = ran(4, 2, line_speeds=speeds)
    assert run_check(NAME, run, collectives(run), pairs(run, [PairTimes(0, 2, 0, 1 << 20, (9.0,))])).skipped


def test_floors_by_link() -> None:
    assert expected_rate("gloo", 1000) == 31.25e6
    assert expected_rate("gloo", 100_000) == 100e6
    assert expected_rate("nccl", 100_000) == expected_rate("gloo", 0) == expected_rate("gloo", -1) == 0


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

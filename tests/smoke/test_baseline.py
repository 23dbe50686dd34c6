"""Baselines of a site: many runs, per product, size and number of ranks; kept, exported, imported, compared with."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from doctor.analysis.outliers.own_past import usual_range
from doctor.cli.baseline import compared_baseline
from doctor.engine.errors import InputError
from doctor.engine.smoke_summary import CollectiveSpeed, PairSpeed, RankEnvironment, SmokeSummary
from doctor.smoke.model import Baseline, SmokeResult, SmokeRun, SpeedHistory
from doctor.smoke.plan import PlanHost, SmokeOptions, build_plan
from doctor.smoke.run import second_measurement
from doctor.smoke.speed.baseline import (
    MOST_RUNS,
    compare,
    merged,
    read_baseline,
    speeds_of,
    with_run,
    write_baseline,
)
from tests.preloaded import run


def summary(factor: float = 1.0, hosts: int = 2, device: str = "Ascend910B3", torch: str = "2.6.0") -> SmokeSummary:
    """A whole run whose speeds are so many times as usual."""
    ops = {"all_reduce": 20e9, "all_gather": 22e9, "reduce_scatter": 21e9}
    world = 8 * hosts
    return SmokeSummary(
        "hccl",
        {f"w{number}": 8 for number in range(hosts)},
        "complete",
        9.0,
        1.0,
        environments=(RankEnvironment(torch, "2.3", "3.11", device, tuple(range(world))),),
        collective_speeds=tuple(
            CollectiveSpeed(op, "world", world, 1 << 20, 0.001, busbw * factor, busbw * factor)
            for op, busbw in ops.items()
        ),
        pair_speeds=tuple(PairSpeed(0, 8 * peer, 1 << 20, 1e-4 / factor) for peer in range(1, hosts)),
    )


def site(dice: random.Random, runs: int, sigma: float, **more: int) -> Baseline:
    baseline = Baseline()
    for _ in range(runs):
        baseline = with_run(baseline, speeds_of(summary(dice.lognormvariate(0, sigma), **more)))
    return baseline


@pytest.mark.parametrize(("sigma", "least"), [(0.01, 50), (0.05, 49), (0.1, 40)])
def test_of_a_thousand_healthy_runs_at_most_few_are_below_the_range_and_two_fifths_of_the_speed_is(
    sigma: float, least: int
) -> None:
    """All speeds of a run go together here. A finding needs two runs, one after the other."""
    dice, found, false = random.Random(1), 0, 0
    for _ in range(50):
        baseline = site(dice, dice.choice([8, 12, 24]), sigma)
        false += sum(compare(baseline, speeds_of(summary(dice.lognormvariate(0, sigma)))).is_slow for _ in range(20))
        found += compare(baseline, speeds_of(summary(0.4 * dice.lognormvariate(0, sigma)))).is_slow
    assert false <= 3 and found >= least, (false, found)


def test_exchanges_compare_with_fleets_of_other_sizes() -> None:
    baseline = site(random.Random(2), 6, 0.02, hosts=4)
    compared = compare(baseline, speeds_of(summary(0.5, hosts=2)))
    assert compared.compared == 1 and compared.slow[0].key.op == "exchange"


def test_other_products_and_versions_do_not_compare() -> None:
    baseline = site(random.Random(3), 6, 0.02)
    for other in (summary(0.1, device="Ascend910_9391"), summary(0.1, torch="2.7.1")):
        compared = compare(baseline, speeds_of(other))
        assert compared.compared == 0 and "it has Ascend910B3 with hccl and torch 2.6" in compared.why_not
    assert compare(baseline, speeds_of(summary(torch="2.6.1"))).compared == 4


@pytest.mark.parametrize(("device", "is_noted"), [("Ascend910B3", False), ("Ascend910_9391", True)])
def test_a_run_that_the_baseline_has_no_run_like_says_what_it_has(
    monkeypatch: pytest.MonkeyPatch, device: str, is_noted: bool
) -> None:
    monkeypatch.setattr(second_measurement, "speeds_of_result", lambda _: speeds_of(summary(device=device)))
    result = SmokeResult(SmokeRun(build_plan({"a": PlanHost(slots=2)}, SmokeOptions(backend="gloo"))), {})
    options = SmokeOptions(baseline=site(random.Random(3), 6, 0.02))
    notes = second_measurement.measure_again(result, options, lambda _: pytest.fail("nothing is slow")).run.notes
    text = f"the baseline has no run of {device} with hccl and torch 2.6: it has Ascend910B3 with hccl and torch 2.6"
    assert notes == (text,) * is_noted


def test_the_latest_runs_are_kept_and_what_both_files_have_is_one_run() -> None:
    baseline = site(random.Random(4), MOST_RUNS + 5, 0.02)
    assert {len(history.values) for history in baseline.series} == {MOST_RUNS}
    first, second = site(random.Random(5), 3, 0.02), site(random.Random(6), 4, 0.02)
    both = merged(first, second)
    assert {len(history.values) for history in both.series} == {7}
    assert merged(both, second) == both


def test_a_run_that_did_not_complete_is_no_baseline() -> None:
    with pytest.raises(ValueError, match="did not complete"):
        speeds_of(SmokeSummary("gloo", {"a": 1}, "trouble", 1.0, 1.0))


ROW = '"product": "CPU", "backend": "gloo", "torch": "2.13", "op": "all_reduce", "bytes": 65536, "ranks": 2, "hosts": 1'


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "",
        '{"backend": "gloo", "busbw": {}}',
        '{"version": 2, "series": 3}',
        '{"version": 2, "series": [{' + ROW + ', "values": [-1.0]}]}',
        '{"version": 2, "series": [{' + ROW + ', "values": [1e999]}]}',
        '{"version": 2, "series": [{' + ROW + ', "values": "\x1b[31m"}]}',
        '{"version": 2, "series": [{' + ROW + ', "values": [1e308, 5e-324]}]}',
        '{"version": 2, "series": [{' + ROW.replace("65536", "-5") + ', "values": [1e9]}]}',
        '{"version": 3, "series": []}',
        '{"version": 2, "series": [], "more": 1}',
        "[" * 100_000,
        "\ud800",
    ],
)
def test_a_file_that_is_no_baseline_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ValueError) as raised:
        read_baseline(tmp_path / "bad")
    assert "\n" not in str(raised.value) and "\x1b" not in str(raised.value)


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    baseline = site(random.Random(7), 6, 0.02)
    write_baseline(tmp_path / "good", baseline)
    assert read_baseline(tmp_path / "good") == baseline


def doctor(*arguments: str, state: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "doctor", "baseline", *arguments]
    return run(argv, env={**os.environ, "XDG_STATE_HOME": str(state)}, text=True, capture_output=True)


def test_the_first_run_of_a_baseline_has_none_to_compare_with(tmp_path: Path) -> None:
    missing = tmp_path / "none.json"
    assert compared_baseline(missing, missing) == Baseline()
    assert compared_baseline(None, missing) is None
    with pytest.raises(InputError, match="expected a file of --save-baseline"):
        compared_baseline(missing, None)


def test_the_sites_baseline_is_shown_exported_and_imported(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    empty = doctor("show", state=here)
    assert (empty.returncode, empty.stderr) == (78, "doctor: no run is saved yet\n")
    write_baseline(tmp_path / "runs", site(random.Random(8), 6, 0.02))
    assert doctor("import", str(tmp_path / "runs"), state=here).returncode == 0
    shown = doctor("show", state=here).stdout.splitlines()
    assert shown[0] == "Ascend910B3 with hccl and torch 2.6"
    assert any("all_reduce 1 MiB, 16 ranks on 2 hosts: median " in line and "of 6 runs" in line for line in shown)
    assert doctor("export", str(tmp_path / "out"), state=here).returncode == 0
    assert doctor("import", str(tmp_path / "out"), state=there).returncode == 0
    assert doctor("show", state=there).stdout.splitlines() == shown
    assert doctor("export", state=here).returncode == 2
    assert doctor("delete", state=here).returncode == 2
    (tmp_path / "bad").write_text("{")
    refused = doctor("import", str(tmp_path / "bad"), state=here)
    assert refused.returncode == 78 and len(refused.stderr.strip().splitlines()) == 1
    (here / "doctor" / "baseline.json").write_text("{")
    assert f"doctor: show {here}/doctor/baseline.json: " in doctor("show", state=here).stderr


def test_a_row_without_a_usable_value_has_no_range() -> None:
    assert (
        usual_range([]) is None
        and usual_range([0.0, float("inf")]) is None
        and usual_range([1e308, 5e-324] * 4) is None
    )
    row = SpeedHistory("CPU", "gloo", "2.13", "all_reduce", 1 << 20, 2, 1, ())
    assert compare(Baseline((row,)), speeds_of(summary())).compared == 0

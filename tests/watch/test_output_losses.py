"""The loss of a job that `doctor watch` starts: from its output, from `probe.loss`, and as a saved run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from doctor.watch.live_losses import LiveLosses
from doctor.watch.loss.log_watch import LogWatch
from tests import preloaded
from tests.watch.running import LIMIT, Watched, doctor_watch

pytestmark = pytest.mark.timeout(250)
NAN = "9 - step / 50 if step < 150 else float('nan')"
HEALTHY = "2 + 8 / (1 + step / 20)"
RISES = "2 + 8 / (1 + step / 20) if step < 150 else 9.5"
JUMPS = "2 + 8 / (1 + step / 20) + (8 if 150 <= step < 170 else 0)"
FLAT = "7.25"
LINE = "print(f'step {step} loss: {loss:.4f}')"


def job(value: str, line: str = LINE, steps: int = 400, code: int = 0) -> tuple[str, ...]:
    """A program that prints its losses."""
    program = f"import random, sys\nfor step in range({steps}):\n    loss = {value}\n    {line}\nsys.exit({code})"
    return (sys.executable, "-c", program)


def failed_checks(watched: Watched) -> list[str]:
    return [outcome["check"] for outcome in watched.report["outcomes"] if outcome["findings"]]


@pytest.mark.parametrize(
    ("value", "check"),
    [
        (NAN, "smoke-not-finite"),
        (RISES, "loss-diverged"),
        (JUMPS, "loss-spiked"),
        (FLAT, "smoke-loss-stalled"),
        ("7 + random.Random(step).random() / 10", "smoke-loss-stalled"),
    ],
    ids=["nan", "rises", "jumps", "flat", "noise"],
)
def test_what_is_wrong_with_the_loss_is_a_finding(value: str, check: str, tmp_path: Path) -> None:
    watched = doctor_watch(*job(value), folder=tmp_path)
    assert check in failed_checks(watched)
    assert watched.code == (0 if check == "loss-spiked" or "random" in value else 10)
    assert f"({check})" in watched.stderr
    assert watched.report["losses"][0]["last_step"] == 399


def test_a_healthy_loss_leaves_the_exit_code_to_the_command(tmp_path: Path) -> None:
    watched = doctor_watch(*job(HEALTHY, code=7), folder=tmp_path)
    assert watched.code == 7 and not failed_checks(watched)
    assert watched.report["losses"][0]["losses"] == 400
    assert all(outcome["status"] == "passed" for outcome in watched.report["outcomes"])
    (tmp_path / "few").mkdir()
    few = doctor_watch(*job(HEALTHY, steps=10, code=7), folder=tmp_path / "few")
    assert few.code == 7 and not few.report and "Undecidable: 10 losses" in few.stderr


def test_ranks_of_one_launch_are_compared(tmp_path: Path) -> None:
    """As torchrun puts its prefix in front of each rank's lines."""
    line = "[print(f'[default{r}]:step {step} loss: {loss + (r == 2 and step > 200) * 0.5:.4f}') for r in range(4)]"
    watched = doctor_watch(*job(HEALTHY, line), folder=tmp_path)
    assert watched.code == 10 and failed_checks(watched) == ["loss-differs-by-rank"]
    assert watched.found_ranks == {"loss-differs-by-rank": [2]}


def test_ranks_that_print_into_one_stream_without_a_prefix_do_not_hide_a_nan(tmp_path: Path) -> None:
    """Ranks are some steps apart, so that the steps of the stream go to and fro."""
    line = "[print(f'step {max(step - r, 0)} loss: {loss:.4f}') for r in range(4)]"
    watched = doctor_watch(*job(NAN, line), folder=tmp_path)
    assert failed_checks(watched) == ["smoke-not-finite"]


def test_a_program_that_falls_silent(tmp_path: Path) -> None:
    line = f"{LINE}; sys.stdout.flush(); step < 90 or __import__('time').sleep(1000)"
    watched = doctor_watch(*job(HEALTHY, line), options=("--silent", "1", "--exit-on", "fault"), folder=tmp_path)
    assert watched.code == 10 and failed_checks(watched) == ["loss-silent"]


def test_a_pattern_of_the_user(tmp_path: Path) -> None:
    options = ("--loss-regex", r"(?P<step>\d+) kosten (?P<loss>[\d.a-z]+)")
    watched = doctor_watch(*job(NAN, "print(step, 'kosten', loss)"), options=options, folder=tmp_path)
    assert failed_checks(watched) == ["smoke-not-finite"]


def test_what_the_program_states_counts_before_what_it_prints(tmp_path: Path) -> None:
    line = "probe.loss(step, loss); print('step', step, 'loss: 1.2345')"
    program = job(NAN, line)
    source = program[2].replace("import random", "from doctor.watch import probe; import random", 1)
    watched = doctor_watch(program[0], "-c", source, folder=tmp_path)
    assert failed_checks(watched) == ["smoke-not-finite"]
    assert watched.report["losses"][0]["first"] == 9.0


def test_checks_are_chosen_and_waived_like_all_others(tmp_path: Path) -> None:
    ignored = doctor_watch(*job(NAN), options=("--ignore", "smoke-not-finite"), folder=tmp_path)
    assert ignored.code == 0 and "smoke-not-finite" not in ignored.stderr
    waivers = tmp_path / "doctor.toml"
    waivers.write_text('[[waive]]\ncheck = "smoke-not-finite"\nreason = "known"\nuntil = 2999-01-01\n')
    waived = doctor_watch(*job(NAN), options=("--config", str(waivers)), folder=tmp_path)
    assert waived.code == 0 and not failed_checks(waived)


def test_a_fault_ends_the_job_where_that_is_wanted(tmp_path: Path) -> None:
    endless = job(NAN, f"{LINE}; sys.stdout.flush(); __import__('time').sleep(0.01)", steps=10**6)
    watched = doctor_watch(*endless, options=("--exit-on", "fault"), folder=tmp_path)
    assert watched.code == 10 and failed_checks(watched) == ["smoke-not-finite"]


def test_a_saved_run_is_reported_again_with_its_curve(tmp_path: Path) -> None:
    run, page = tmp_path / "run", tmp_path / "page.html"
    watched = doctor_watch(*job(NAN), options=("--save", str(run), "-f", f"html={page}"), folder=tmp_path)
    assert '<polyline points="' in page.read_text() and "Watched program" in page.read_text()
    again = preloaded.run(
        [sys.executable, "-m", "doctor", "report", str(run), "--json"], capture_output=True, text=True, timeout=LIMIT
    )
    assert again.returncode == 10, again.stderr
    report = json.loads(again.stdout)
    assert report["losses"] == watched.report["losses"]
    assert report["outcomes"] == watched.report["outcomes"]
    (tmp_path / "report").write_text(again.stdout)
    completed = preloaded.run(
        [sys.executable, "-m", "doctor", "report", str(tmp_path / "report"), "-f", "plain"],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env={**os.environ, "LC_ALL": "C"},
    )
    assert "steps 0 to 399, 400 losses, 250 not finite" in completed.stdout
    broken = json.loads(run.read_text())
    broken["watch"]["curves"] = 5
    run.write_text(json.dumps(broken))
    bad = preloaded.run(
        [sys.executable, "-m", "doctor", "report", str(run)], capture_output=True, text=True, timeout=LIMIT
    )
    assert bad.returncode == 78 and "$.watch.curves" in bad.stderr


def test_logs_have_the_same_report(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        subprocess.run(job(RISES), stdout=file, check=True)
    done = preloaded.run(
        [
            sys.executable,
            "-m",
            "doctor",
            "watch",
            "--log",
            "--once",
            str(log),
            "--save",
            str(tmp_path / "run"),
            "-f",
            "md",
        ],
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 10, done.stderr
    assert "loss-diverged" in done.stdout


def test_what_a_watchdog_has_said_is_of_one_process(tmp_path: Path) -> None:
    """torchrun starts the ranks again: the next rank 0 may end by a fault of its own."""
    line = "[rank0]:[E1126 x.cpp:689] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=29)\n"
    (tmp_path / "-1-stderr.lines").write_text(line)
    losses = LiveLosses(tmp_path, tmp_path, LogWatch())
    assert losses.timeout_of(1) == ""
    assert losses.timeout_of(0).endswith("WorkNCCL(SeqNum=29)")
    assert losses.timeout_of(0) == ""

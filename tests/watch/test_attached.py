"""`doctor watch --attach` on real jobs over gloo that were started without any preparation."""

from __future__ import annotations

import json
import os
import shlex
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests import preloaded
from tests.hosts.fleet import Fleet
from tests.watch.attached import Job

pytestmark = pytest.mark.timeout(590)
ROOT = Path(__file__).resolve().parents[2]
CLEAN = {**os.environ, "PYTHONPATH": str(ROOT)}


def attach(job: Job, *options: str) -> tuple[int, dict[str, Any]]:
    """Exit code and report of this job alone: others may run on the host."""
    pids = [word for pid in job.pids for word in ("--pid", str(pid))]
    command = [sys.executable, "-m", "doctor", "watch", "--attach", "--json", *pids, *options]
    done = preloaded.run(command, capture_output=True, text=True, timeout=300)
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout)


def named_ranks(report: dict[str, Any]) -> list[int]:
    findings = [finding for outcome in report["outcomes"] for finding in outcome["findings"]]
    return [rank for finding in findings for rank in finding["values"]["ranks"]]


def odd_ranks(folder: Path, fault: str, culprit: int, world: int, *options: str) -> tuple[list[int], dict[str, Any]]:
    job = Job(folder, fault, culprit, world)
    try:
        job.wait_until_faulty()
        report = attach(job, *options)[1]
        return named_ranks(report), report
    finally:
        job.end()


@pytest.mark.full
@pytest.mark.torch
def test_a_rank_that_sleeps_and_no_rank_is_stopped_by_looking(tmp_path: Path) -> None:
    job = Job(tmp_path / "job", "sleep", 1, 3)
    states: set[str] = set()
    done = threading.Event()

    def watch_states() -> None:
        while not done.is_set():
            for pid in job.pids:
                states.add(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0])
            time.sleep(0.005)

    try:
        job.wait_until_faulty()
        thread = threading.Thread(target=watch_states)
        thread.start()
        code, report = attach(job)
        done.set()
        thread.join()
    finally:
        done.set()
        job.end()
    assert (code, named_ranks(report)) == (10, [1])
    assert "sleeps" in report["outcomes"][0]["findings"][0]["message"]
    assert not states & {"T", "t"}


CHECKS = {"stop": "smoke-rank-stopped", "exit": "smoke-rank-left"}


@pytest.mark.torch
@pytest.mark.full
@pytest.mark.parametrize("world", [4, 8])
@pytest.mark.parametrize("fault", ["stop", "sleep", "fifo", "input", "pdb", "exit", "loader"])
def test_the_odd_rank(tmp_path: Path, fault: str, world: int) -> None:
    culprit = sum(map(ord, fault)) % world
    ranks, report = odd_ranks(tmp_path / "job", fault, culprit, world)
    assert ranks == [culprit]
    assert report["outcomes"][0]["check"] in (CHECKS.get(fault, "smoke-rank-blocked"), "smoke-input-stalled")


@pytest.mark.torch
@pytest.mark.full
def test_an_endless_loop_is_undecided_without_stacks_and_named(tmp_path: Path) -> None:
    """It may be an evaluation: only its stack, at one place all the time, would tell."""
    ranks, report = odd_ranks(tmp_path / "job", "loop", 2, 4)
    assert (ranks, report["exit"]) == ([], 12)
    assert any(note.startswith("rank 2 ") and "wait" in note for note in report["smoke"]["notes"]), report["smoke"][
        "notes"
    ]


@pytest.mark.torch
@pytest.mark.full
@pytest.mark.parametrize("pause", ["0.01", "0.3"])
def test_a_healthy_job_has_no_odd_rank(tmp_path: Path, pause: str) -> None:
    job = Job(tmp_path / "job", "healthy", -1, 4, JOB_PAUSE=pause, JOB_WORKERS="1")
    try:
        job.wait_until_faulty()
        for _ in range(3):
            code, report = attach(job, "--interval", "2")
            assert (code, report["verdict"], named_ranks(report)) == (0, "healthy", [])
    finally:
        job.end()


WAITS = "import threading; threading.Event().wait()"
SLEEPS = "import time; time.sleep(3600)"


@pytest.mark.hosts
def test_ranks_on_other_hosts(fleet_cpu: Fleet) -> None:
    """Over SSH, by the hosts' own Python: two ranks wait, and one sleeps."""
    places = {"node1": (0, WAITS), "node2": (1, WAITS), "node3": (2, SLEEPS)}
    hosts = dict(zip(fleet_cpu.hosts, places.values(), strict=False))
    for host, (rank, program) in hosts.items():
        start = f"RANK={rank} WORLD_SIZE=3 MASTER_PORT=29777 setsid python3 -c {shlex.quote(program)}"
        fleet_cpu.enter(host, f"{start} >/dev/null 2>&1 </dev/null & echo $! >/run/rank.pid")
    try:
        argv = [sys.executable, "-m", "doctor", "watch", "--attach", ",".join(hosts), "--json", "--py-spy", "off"]
        done = fleet_cpu.run(
            [*argv, "-F", str(fleet_cpu.ssh_config)], capture_output=True, text=True, timeout=200, env=CLEAN, cwd=ROOT
        )
    finally:
        for host in hosts:
            fleet_cpu.enter(host, "kill $(cat /run/rank.pid); rm /run/rank.pid")
    [outcome] = json.loads(done.stdout)["outcomes"]
    [finding] = outcome["findings"]
    assert (done.returncode, outcome["check"], finding["hosts"]) == (10, "smoke-rank-blocked", [list(hosts)[2]])
    assert finding["values"]["ranks"] == [2] and "sleeps" in finding["message"]

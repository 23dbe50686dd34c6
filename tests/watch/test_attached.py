"""`doctor watch --attach` on real jobs over gloo that were started without any preparation."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.watch.attached import Job

pytestmark = [pytest.mark.torch, pytest.mark.timeout(590)]


def attach(job: Job, *options: str) -> tuple[int, dict[str, Any]]:
    """Exit code, and what is said of this job among all that run on the host."""
    command = [sys.executable, "-m", "doctor", "watch", "--attach", "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert "Traceback" not in done.stderr
    document = json.loads(done.stdout)
    [found] = [one for one in document["jobs"] if f"master port {job.port}," in one["job"]]
    return done.returncode, found


def odd_ranks(folder: Path, fault: str, culprit: int, world: int, *options: str) -> tuple[list[int], dict[str, Any]]:
    job = Job(folder, fault, culprit, world)
    try:
        job.wait_until_faulty()
        found = attach(job, *options)[1]
        return [one["rank"] for one in found["odd"]], found
    finally:
        job.end()


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
        code, found = attach(job)
        done.set()
        thread.join()
    finally:
        done.set()
        job.end()
    assert [one["rank"] for one in found["odd"]] == [1]
    assert "sleeps" in found["text"]
    assert not states & {"T", "t"}
    assert code in (10, 12)


@pytest.mark.full
@pytest.mark.parametrize("world", [4, 8])
@pytest.mark.parametrize("fault", ["stop", "loop", "sleep", "fifo", "input", "pdb", "exit", "loader"])
def test_the_odd_rank(tmp_path: Path, fault: str, world: int) -> None:
    culprit = sum(map(ord, fault)) % world
    assert odd_ranks(tmp_path / "job", fault, culprit, world)[0] == [culprit]


@pytest.mark.full
@pytest.mark.parametrize("pause", ["0.01", "0.3"])
def test_a_healthy_job_has_no_odd_rank(tmp_path: Path, pause: str) -> None:
    job = Job(tmp_path / "job", "healthy", -1, 4, JOB_PAUSE=pause, JOB_WORKERS="1")
    try:
        job.wait_until_faulty()
        for _ in range(3):
            found = attach(job, "--interval", "2")[1]
            assert (found["result"], found["odd"]) == ("moves", [])
    finally:
        job.end()

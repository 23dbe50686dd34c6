"""`doctor diagnose --job` where only a real sacct, over slurmdbd and MariaDB, knows how a job ended."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import preloaded
from tests.diagnose.accounting import ABSENT_PROGRAMS, Accounting

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        bool(ABSENT_PROGRAMS) or os.geteuid() != 0, reason=f"needs root and {', '.join(ABSENT_PROGRAMS)}"
    ),
    pytest.mark.timeout(600),
]
ROOT = Path(__file__).resolve().parents[2]
SLEEP = "#!/bin/sh\necho step 1\nexec sleep 300\n"


@pytest.fixture(scope="module")
def slurm() -> Iterator[Accounting]:
    with tempfile.TemporaryDirectory(prefix="acct-", dir="/tmp") as folder:
        accounting = Accounting(Path(folder))
        try:
            yield accounting
        finally:
            accounting.end()


def submit(slurm: Accounting, tmp_path: Path, *options: str) -> str:
    """A job that sleeps, once it runs."""
    script = tmp_path / "job.sh"
    script.write_text(SLEEP)
    job = slurm.run("sbatch", "--parsable", "-D", str(tmp_path), *options, str(script)).strip()
    wait(slurm, job, "RUNNING")
    return job


def wait(slurm: Accounting, job: str, *states: str, seconds: float = 240.0) -> str:
    deadline = time.monotonic() + seconds
    while True:
        state = slurm.run("sacct", "-j", job, "-X", "-n", "-P", "--duplicates", "-o", "State").strip()
        if any(word in state for word in states):
            return state
        assert time.monotonic() < deadline, (job, state, states)
        time.sleep(0.5)


def diagnosed(slurm: Accounting, job: str) -> dict[str, Any]:
    argv = [sys.executable, "-m", "doctor", "diagnose", "--job", f"slurm:{job}", "--json"]
    environ = {**os.environ, **slurm.environ}
    done = preloaded.run(argv, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert "Traceback" not in done.stderr and done.stdout, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def only_cause(document: dict[str, Any]) -> tuple[str, list[int], list[str]]:
    (cause,) = document["causes"]
    return cause["signature"], cause["ranks"], cause["hosts"]


def test_a_job_that_a_person_cancelled_accuses_nobody(slurm: Accounting, tmp_path: Path) -> None:
    job = submit(slurm, tmp_path)
    slurm.run("scancel", job)
    assert wait(slurm, job, "CANCELLED").startswith("CANCELLED by 0")
    signature, ranks, hosts = only_cause(diagnosed(slurm, job))
    assert signature in ("slurm-job-cancelled", "slurm-cancelled") and not ranks and not hosts


@pytest.mark.parametrize(
    "arguments", [[], ["-P"], ["-l"], ["-l", "-P"], ["-X", "-o", "state,jobid"], ["--json"]], ids=" ".join
)
def test_saved_output_of_sacct_is_read_in_every_form(slurm: Accounting, tmp_path: Path, arguments: list[str]) -> None:
    job = submit(slurm, tmp_path)
    slurm.run("scancel", job)
    wait(slurm, job, "CANCELLED")
    saved = tmp_path / "saved.txt"
    saved.write_text(slurm.run("sacct", "-j", job, *arguments))
    argv = [sys.executable, "-m", "doctor", "diagnose", str(saved), "--json"]
    done = preloaded.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert only_cause(json.loads(done.stdout)) == ("slurm-job-cancelled", [], [])


def test_the_node_of_a_job_of_one_node_is_named_whether_or_not_it_is_up_again(
    slurm: Accounting, tmp_path: Path
) -> None:
    """A daemon that still runs registers again within a second, so that the node is mostly idle by then."""
    job = submit(slurm, tmp_path, "--no-requeue", "-w", "n1")
    slurm.run("scontrol", "update", "nodename=n1", "state=down", "reason=test")
    assert wait(slurm, job, "NODE_FAIL") == "NODE_FAIL"
    document = diagnosed(slurm, job)
    slurm.resume("n1")
    assert only_cause(document) == ("slurm-job-node-failed", [], ["n1"])
    (cause,) = document["causes"]
    assert (cause["confidence"], cause["summary"]) == ("certain", "Slurm lost host n1, the only node of the job")


def test_the_one_of_two_nodes_whose_daemon_is_dead_is_named(slurm: Accounting, tmp_path: Path) -> None:
    job = submit(slurm, tmp_path, "--no-requeue", "-N", "2")
    slurm.kill_daemon("n1")
    slurm.run("scontrol", "update", "nodename=n1", "state=down", "reason=test")
    assert wait(slurm, job, "NODE_FAIL") == "NODE_FAIL"
    document = diagnosed(slurm, job)
    slurm.start_daemon("n1")
    assert only_cause(document) == ("slurm-job-node-failed", [], ["n1"])
    assert document["causes"][0]["confidence"] == "likely"


def test_a_job_that_a_more_urgent_one_preempted_accuses_nobody(slurm: Accounting, tmp_path: Path) -> None:
    job = submit(slurm, tmp_path, "--no-requeue", "-N", "2", "--exclusive")
    urgent = submit(slurm, tmp_path, "-p", "urgent", "-N", "2", "--exclusive")
    wait(slurm, job, "PREEMPTED")
    document = diagnosed(slurm, job)
    slurm.run("scancel", urgent)
    signature, ranks, hosts = only_cause(document)
    assert signature in ("slurm-job-cancelled", "slurm-cancelled") and not ranks and not hosts


def test_a_job_at_its_time_limit_accuses_nobody(slurm: Accounting, tmp_path: Path) -> None:
    job = submit(slurm, tmp_path, "-t", "1")
    wait(slurm, job, "TIMEOUT")
    signature, ranks, hosts = only_cause(diagnosed(slurm, job))
    assert signature in ("slurm-job-timeout", "slurm-time-limit") and not ranks and not hosts

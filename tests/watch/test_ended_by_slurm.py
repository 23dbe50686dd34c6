"""`doctor watch` in the script of a real Slurm job that hangs, and that its user cancels or its time limit ends."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hosts.fleet import Fleet
from tests.hosts.slurm import needs_slurm
from tests.jobs.site import Site

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tests" / "watch" / "programs" / "further_ways.py"
pytestmark = [
    pytest.mark.hosts,
    pytest.mark.full,
    pytest.mark.torch,
    needs_slurm,
    pytest.mark.timeout(400),
]


@pytest.fixture(scope="module")
def site(make_fleet: Callable[..., Fleet]) -> Iterator[Site]:
    site = Site(make_fleet, 1, name="end", subnet="10.78.0.0/16")
    try:
        site.start_slurm("MinJobAge=60\nKillWait=10\n")
        yield site
    finally:
        site.end()


@pytest.mark.parametrize("how", ["scancel", "time limit"])
def test_who_was_waited_for_is_the_last_word_of_a_job_that_slurm_ends(site: Site, how: str) -> None:
    folder = site.folder / how.replace(" ", "-")
    folder.mkdir()
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3", str(PROGRAM)]
    job = shlex.join([sys.executable, "-m", "doctor", "watch", "--", *launch, "child_never_ends", str(folder)])
    script, out = folder / "job.sh", folder / "out"
    variables = f"export PYTHONPATH={ROOT} OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo HOME={folder} DOCTOR_HISTORY=off"
    script.write_text(f"#!/bin/sh\n{variables}\nip link set lo up\nexec {job}\n")
    limit = "1" if how == "time limit" else "10"
    number = site.run("sbatch", "--parsable", "-N1", "-n1", "-t", limit, "-o", str(out), str(script))
    end = time.monotonic() + 120
    while not (folder / "struck").exists() and time.monotonic() < end:
        time.sleep(0.5)
    assert (folder / "struck").exists(), out.read_text()
    if how == "scancel":
        time.sleep(40)  # far longer than the phases of its start
        site.run("scancel", number)
    end = time.monotonic() + 150
    while "smoke-rank-blocked: rank 0" not in out.read_text() and time.monotonic() < end:
        time.sleep(0.5)
    text = out.read_text()
    # The time limit comes after the patience: there it was a verdict before.
    assert ("likely " if how == "scancel" else "") + "smoke-rank-blocked: rank 0" in text, text
    assert "child_never_ends" in text and "further_ways.py" in text

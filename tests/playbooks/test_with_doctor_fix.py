"""`doctor fix` with our own playbooks, on hosts with many faults at once: planned, mended, proven, taken back."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import PREPARED
from tests.hosts.fleet import Fleet
from tests.playbooks.cases import CASES
from tests.playbooks.test_remedies import ENVIRON, ROOT, looked, put_in

pytestmark = pytest.mark.hosts
# Limits need root that may raise them, which root of some containers may not; the clock's stand-in hides other facts.
NAMES = {"raise-listen-queues", "reserve-job-ports", "keep-kernel-settings", "raise-conntrack-limit", "enlarge-shm"}
NAMES |= {"write-host-names", "correct-host-name", "name-own-address", "open-job-ports"}
MINE = [one for one in CASES if one.fleet == "cpu" and one.playbook in NAMES]
Fix = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def fleet(make_fleet: Callable[..., Fleet]) -> Iterator[Fleet]:
    made = make_fleet(4, {"*": PREPARED}, shm="4g")
    with ExitStack() as stack:
        put_in(made, MINE, stack)
        yield made
    made.down()


@pytest.fixture
def fix(fleet: Fleet, tmp_path: Path) -> Fix:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "HCCL", "RANK"))}
    environ = {**clean, **ENVIRON["cpu"], "XDG_STATE_HOME": str(tmp_path)}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "doctor", "fix", *words, "-F", str(fleet.ssh_config)]
        return fleet.run(command, env=environ, cwd=ROOT, timeout=200)

    return run


def test_all_faults_are_mended_proven_and_taken_back(fleet: Fleet, fix: Fix) -> None:
    hosts = ["-w", ",".join(fleet.hosts)]
    before = looked(fleet)
    planned = fix(*hosts)
    assert planned.returncode == 0, planned.stdout + planned.stderr
    assert all(f"  {name}: " in planned.stdout for name in NAMES)
    assert looked(fleet) == before  # a plan changes nothing
    applied = fix(*hosts, "--apply", "--yes", "--force")
    assert applied.returncode == 0, applied.stdout + applied.stderr
    assert "FIXED: 4 of 4 hosts verified" in applied.stdout
    assert "sb0004: Check that /etc/nftables.conf loads" in applied.stdout
    assert looked(fleet) != before
    name = applied.stdout.partition("--undo ")[2].split()[0]
    undone = fix("--undo", name, "--yes")
    assert undone.returncode == 0, undone.stdout + undone.stderr
    assert looked(fleet) == before

"""`doctor fix` with our own playbooks, on hosts with many faults at once: planned, applied, verified, undone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import PREPARED
from tests.hosts.fleet import Fleet
from tests.hosts.npu import npu_fleet
from tests.hosts.testbed import merge
from tests.playbooks.cases import CASES, Case
from tests.playbooks.test_remedies import ENVIRON, LOGIN, ROOT, host_states, put_in

pytestmark = pytest.mark.hosts
# Limits need root that may raise them, which root of some containers may not; the clock's stand-in hides other facts.
CPU_NAMES = {"raise-listen-queues", "reserve-job-ports", "keep-kernel-settings", "raise-conntrack-limit", "enlarge-shm"}
CPU_NAMES |= {"write-host-names", "correct-host-name", "name-own-address", "open-job-ports"}
# Those of NPUs that the undo restores to the last file.
NPU_NAMES = {"correct-device-netmask", "correct-detect-address", "write-hccn-conf"}
NPU_NAMES |= {"align-tls-switch", "switch-tls-off", "take-link-up"}
Fix = Callable[..., "subprocess.CompletedProcess[str]"]


@dataclass(frozen=True)
class Faulty:
    """A fleet of one kind with the faults of its playbooks."""

    kind: str
    fleet: Fleet
    names: set[str]


def cases(kind: str, names: set[str]) -> list[Case]:
    return [entry for entry in CASES if entry.fleet == kind and entry.playbook in names]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("cpu", CPU_NAMES), id="cpu"),
        pytest.param(("a2", NPU_NAMES), id="a2", marks=pytest.mark.full),
    ],
)
def faulty(make_fleet: Callable[..., Fleet], request: pytest.FixtureRequest) -> Iterator[Faulty]:
    kind, names = request.param
    npus = npu_fleet("A2", 4) if kind == "a2" else {}
    hosts = [f"sb{number:04d}" for number in range(1, 5)]
    fleet = make_fleet(4, {name: merge(PREPARED, LOGIN, npus.get(name, {})) for name in hosts}, shm="4g")
    with ExitStack() as stack:
        put_in(fleet, cases(kind, names), stack)
        yield Faulty(kind, fleet, names)
    fleet.down()


@pytest.fixture
def fix(faulty: Faulty, tmp_path: Path) -> Fix:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "HCCL", "RANK"))}
    environ = {**clean, **ENVIRON[faulty.kind], "XDG_STATE_HOME": str(tmp_path)}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "doctor", "fix", *arguments, "-F", str(faulty.fleet.ssh_config)]
        return faulty.fleet.run(command, env=environ, cwd=ROOT, timeout=200)

    return run


def test_all_faults_are_fixed_verified_and_undone(faulty: Faulty, fix: Fix) -> None:
    fleet = faulty.fleet
    hosts = ["-w", ",".join(fleet.hosts), *(sorted(faulty.names) if faulty.kind == "a2" else ())]
    before = host_states(fleet)
    planned = fix(*hosts)
    assert planned.returncode == 0, planned.stdout + planned.stderr
    assert all(f"  {name}: " in planned.stdout for name in faulty.names)
    assert host_states(fleet) == before  # a plan changes nothing
    applied = fix(*hosts, "--apply", "--yes", "--force")
    assert applied.returncode == 0, applied.stdout + applied.stderr
    if faulty.kind == "cpu":
        assert "FIXED: 4 of 4 hosts verified" in applied.stdout
        assert "sb0004: Check that /etc/nftables.conf loads" in applied.stdout
    assert host_states(fleet) != before
    name = applied.stdout.partition("--undo ")[2].split()[0]
    undone = fix("--undo", name, "--yes")
    assert undone.returncode == 0, undone.stdout + undone.stderr
    assert host_states(fleet) == before

"""The limits of a real slurmd are those of the tasks that srun starts, and what the check says of them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hosts.fleet import Fleet
from tests.hosts.slurm import Cluster, needs_slurm, program

pytestmark = [
    pytest.mark.hosts,
    needs_slurm,
]
ROOT = Path(__file__).resolve().parents[2]
NAME = "open-files-limit-low"


@pytest.fixture(scope="module")
def cluster(make_fleet: Callable[..., Fleet]) -> Iterator[Cluster]:
    fleet = make_fleet(2, name="lim")
    made = Cluster(fleet)
    try:
        for host in fleet.hosts:
            fleet.enter(host, f"mkdir -p /etc/slurm && cp {made.folder}/slurm.conf /etc/slurm/slurm.conf")
        yield made
    finally:
        made.end()


def test_what_srun_gives_its_tasks(cluster: Cluster) -> None:
    low = cluster.fleet.hosts[1]
    cluster.signal(low, "KILL")
    cluster.fleet.enter(low, f"ulimit -n 48; SLURM_CONF={cluster.folder}/slurm.conf {program('slurmd')}")
    cluster.wait()
    done = cluster.run("srun", "-N2", "-D", "/tmp", "sh", "-c", 'echo "$(hostname) $(ulimit -Sn) $(ulimit -Hn)"')
    limits = {host: int(soft) for host, soft, _ in map(str.split, done.stdout.splitlines())}
    assert limits[low] == 48 < limits[cluster.fleet.hosts[0]]
    command = [sys.executable, "-m", "doctor", "check", ",".join(limits), "-F", str(cluster.fleet.ssh_config)]
    command += ["--select", NAME, "--json", "--", "srun", "-N2", "python3", "/root/train.py"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("DOCTOR_", "SLURM_"))}
    report = json.loads(cluster.fleet.run(command, env=clean, cwd=ROOT).stdout)
    (outcome,) = [outcome for outcome in report["outcomes"] if outcome["check"] == NAME]
    observed = {host: finding["values"]["observed"] for finding in outcome["findings"] for host in finding["hosts"]}
    assert observed[low] == 48
    assert cluster.fleet.hosts[0] not in observed

"""A follower whose firewall lets no rank of another host in, in jobs that real launchers start on several hosts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.hosts.fleet import INSIDE, Fleet
from tests.hosts.slurm import Cluster, needs_mpirun, needs_slurm
from tests.smoke.interpreter import visible_folders
from tests.smoke.test_launched_hosts import ROOT, Done, job

pytestmark = [pytest.mark.torch, pytest.mark.hosts, pytest.mark.timeout(240)]
DROP = 'iifname != "lo" tcp dport != { 22, 6818 } ct state new drop'
SHUT = f"table inet shut {{ chain in {{ type filter hook input priority 0; {DROP}; }}; }}"
"""What starts the ranks passes: SSH, and the slurmd of Slurm (its default port)."""
SMOKE = ("--steps", "2", "--json", "--budget", "100")


@pytest.fixture(scope="module")
def fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    return make_fleet(3, {"*": {"shows": visible_folders()}}, name="lff", subnet="10.69.0.0/16")


def environment(fleet: Fleet) -> list[Done]:
    ranks: list[tuple[str, Mapping[str, Any]]] = [(host, {}) for host in fleet.hosts]
    return job(fleet, ranks, "--budget", "100")


def torchrun(fleet: Fleet) -> list[Done]:
    """On each host, as `torchrun --nnodes 3 --node-rank N`."""
    master = fleet.addresses[fleet.hosts[0]]

    def start(number: int) -> Done:
        argv = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "3", "--node-rank", str(number)]
        argv += ["--nproc-per-node", "1", "--master-addr", master, "--master-port", "29500", "-m", "doctor.smoke"]
        env = INSIDE | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        return fleet.enter(fleet.hosts[number], [*argv, *SMOKE], check=False, env=env, timeout=200)

    with ThreadPoolExecutor(3) as pool:
        return list(pool.map(start, range(3)))


def mpirun(fleet: Fleet) -> list[Done]:
    """From beside the hosts, over SSH."""
    config = fleet.directory / "by-address"
    names = "".join(f"Host {name}\n HostName {address}\n" for name, address in fleet.addresses.items())
    config.write_text(names + fleet.ssh_config.read_text())
    argv = ["mpirun", "--allow-run-as-root", "-np", "3", "--host", ",".join(f"{host}:1" for host in fleet.hosts)]
    argv += ["--mca", "plm_rsh_agent", f"ssh -F {config}", "-x", f"PYTHONPATH={ROOT}", "--wdir", "/tmp"]
    argv += ["-x", f"MASTER_ADDR={fleet.addresses[fleet.hosts[0]]}", "-x", "MASTER_PORT=29500"]
    return [fleet.run([*argv, sys.executable, "-m", "doctor.smoke", *SMOKE], timeout=200)]


def srun(fleet: Fleet) -> list[Done]:
    """By a Slurm whose nodes are the hosts."""
    cluster = Cluster(fleet)
    try:
        script = f"export PYTHONPATH={ROOT}; exec {sys.executable} -m doctor.smoke {' '.join(SMOKE)}"
        return [cluster.run("srun", "-N3", "-n3", "--chdir=/tmp", "sh", "-c", script, timeout=200)]
    finally:
        cluster.end()


@pytest.mark.full
@pytest.mark.parametrize(
    "launch",
    [environment, torchrun, pytest.param(mpirun, marks=needs_mpirun), pytest.param(srun, marks=needs_slurm)],
)
def test_the_follower_is_named_and_not_who_cannot_reach_it(fleet: Fleet, launch: Callable[[Fleet], list[Done]]) -> None:
    """The second of three hosts: of two ranks of gloo the one with the larger address connects, here that of the third.

    The third host alone is kept out, and the leader's own attempts show which end of the two it is.
    """
    host = fleet.hosts[1]
    with fleet.broken(host, nft=SHUT):
        done = launch(fleet)
    assert done[0].stdout, [each.stderr[-2000:] for each in done]
    report = json.loads(done[0].stdout[done[0].stdout.index("{") :])
    failed = {
        outcome["check"]: sorted({name for finding in outcome["findings"] for name in finding["hosts"]})
        for outcome in report["outcomes"]
        if outcome["status"] == "failed"
    }
    assert failed in ({"smoke-rank-never-joined": [host]}, {"smoke-network-silent": [host]}), report["smoke"][
        "failures"
    ]

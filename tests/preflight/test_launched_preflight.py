"""`doctor preflight` under real launchers on real hosts: mpirun, torchrun, mp.spawn, a loop of the shell, msrun.

MindSpore is too large to be installed for it: ``MSRUN=/path/to/bin/msrun`` runs that part with a real msrun. Without
it, the environment is what msrun of MindSpore 2.10 was seen to set.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.fleet import Fleet
from tests.hosts.slurm import needs_mpirun
from tests.jobs.scripts import TRAIN, script, trained
from tests.jobs.site import Site

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(180)]
MSRUN = os.environ.get("MSRUN", "")
TORCHRUN = f'#!/bin/sh\nexec {sys.executable} -m torch.distributed.run "$@"\n'
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
needs_torch = pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="needs torch")
Json = Any
Done = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def site(make_fleet: Callable[..., Fleet]) -> Iterator[Site]:
    shows = [str(Path(MSRUN).resolve().parents[1])] if MSRUN else []
    files = {"/usr/local/bin/torchrun": TORCHRUN}
    created_site = Site(make_fleet, 3, name="lau", subnet="10.74.0.0/16", files=files, shows=shows)
    (created_site.folder / "train.py").write_text(TRAIN)
    (created_site.folder / "hosts").write_text("".join(f"{host} slots=2\n" for host in created_site.hosts))
    yield created_site
    created_site.end()


def lines(done: Done) -> list[str]:
    return re.findall(r"^doctor preflight: .*$", done.stdout, re.MULTILINE)


def run(site: Site, host: str, name: str, env: Mapping[str, str] = {}) -> Done:
    """A script of the README, on a host."""
    (site.folder / f"{name}.sh").write_text(script(name))
    return site.enter(host, f"bash {name}.sh", env)


def on_two(site: Site, name: str, env: Mapping[str, str]) -> list[Done]:
    """The script on two hosts at once, as a cluster's own start script does it."""
    job = {**env, "NNODES": "2", "NPROC": "2", "MASTER_ADDR": site.fleet.addresses[site.hosts[0]]}

    def launch(rank: int) -> Done:
        return run(site, site.hosts[rank], name, {**job, "NODE_RANK": str(rank)})

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(launch, range(2)))


# -- mpirun


@pytest.mark.sample
@needs_mpirun
def test_mpirun_gets_the_healthy_hosts(site: Site) -> None:
    first, bad, third = site.hosts
    with site.closed_tmp(bad):
        done = run(site, first, "mpirun", AS_ROOT)
    assert (done.returncode, trained(done.stdout)) == (0, [first, third]), done
    assert (site.folder / "nodes").read_text() == f"{first} slots=2\n{third} slots=2\n"


@needs_mpirun
def test_mpirun_is_not_started_where_too_few_hosts_are_healthy(site: Site) -> None:
    with site.closed_tmp(*site.hosts[1:]):
        done = run(site, site.hosts[0], "mpirun", AS_ROOT)
    assert (done.returncode, trained(done.stdout)) == (10, []), done


@pytest.mark.every
@pytest.mark.sample
@needs_mpirun
def test_ranks_of_mpirun_that_are_all_well_train(site: Site) -> None:
    done = run(site, site.hosts[0], "mpirun-ranks", AS_ROOT)
    assert done.returncode == 0, done
    assert trained(done.stdout) == [host for host in site.hosts for _ in range(2)]
    assert len(lines(done)) == 3, "one a host"


@pytest.mark.sample
@needs_mpirun
def test_one_bad_host_among_mpiruns_ranks_stops_all(site: Site) -> None:
    bad = site.hosts[1]
    with site.full_logs(bad):
        done = run(site, site.hosts[0], "mpirun-ranks", AS_ROOT)
    assert (done.returncode, trained(done.stdout)) == (10, []), done
    assert [line for line in lines(done) if f"bad={bad} why=disk-full:{bad} " in line]


# -- torchrun


@pytest.mark.sample
@needs_torch
def test_torchrun_starts_on_healthy_hosts(site: Site) -> None:
    done = on_two(site, "torchrun", {"MASTER_PORT": "29500"})
    assert [launch.returncode for launch in done] == [0, 0], done
    assert [trained(launch.stdout) for launch in done] == [[host] * 2 for host in site.hosts[:2]], done


@needs_torch
def test_torchrun_is_not_started_on_a_bad_host(site: Site) -> None:
    bad = site.hosts[1]
    with site.closed_tmp(bad):
        done = run(site, bad, "torchrun", {"NNODES": "2", "NODE_RANK": "1", "NPROC": "2", "MASTER_ADDR": bad})
    assert (done.returncode, trained(done.stdout)) == (10, []), done


@pytest.mark.sample
@needs_torch
def test_workers_of_torchrun_end_with_one_verdict(site: Site) -> None:
    """Its agent holds MASTER_PORT already, as it must."""
    host = site.hosts[2]
    done = site.enter(host, "torchrun --nproc-per-node 2 --no-python doctor preflight")
    assert done.returncode == 0, done
    [line] = lines(done)
    assert " where=torchrun " in line
    assert "master-port-taken" not in line


SPAWN = """\
import os, subprocess, sys
import torch.multiprocessing as mp

def rank(number, world):
    os.environ.update(RANK=str(number), LOCAL_RANK=str(number), WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world))
    code = subprocess.run(["doctor", "preflight"]).returncode
    print("rank", number, "code", code, flush=True)
    sys.exit(code)

if __name__ == "__main__":
    mp.start_processes(rank, args=(2,), nprocs=2, start_method="fork")
"""


@pytest.mark.sample
@needs_torch
def test_spawned_ranks_end_with_one_verdict(site: Site) -> None:
    bad = site.hosts[1]
    (site.folder / "spawn.py").write_text(SPAWN)
    with site.full_logs(bad):
        done = site.enter(bad, f"{sys.executable} spawn.py")
    assert done.returncode == 1, done
    assert "terminated with exit code 10" in done.stderr
    assert len(lines(done)) == 1


# -- a loop of the shell, as in the Ascend guides

LOOP = """\
export RANK_SIZE=4
for i in 0 1 2 3; do
  export DEVICE_ID=$i RANK_ID=$i
  { doctor preflight && python3 train.py; echo "rank $i: $?"; } &
done
wait
"""


@pytest.mark.sample
def test_ranks_of_a_shell_loop_train_or_stop_together(site: Site) -> None:
    host = site.hosts[1]
    (site.folder / "loop.sh").write_text(LOOP)
    done = site.enter(host, "bash loop.sh")
    assert trained(done.stdout) == [host] * 4, done
    with site.closed_tmp(host):
        done = site.enter(host, "bash loop.sh")
    assert sorted(re.findall(r"^rank .*$", done.stdout, re.MULTILINE)) == [f"rank {n}: 10" for n in range(4)]
    assert lines(done) and all("doctor preflight: FAIL " in line for line in lines(done))


# -- msrun


def as_msrun(role: str, rank: int, address: str) -> dict[str, str]:
    own_values = {} if role == "MS_SCHED" else {"DEVICE_ID": str(rank), "MS_NODE_ID": str(rank)}
    meeting = {"MS_SCHED_HOST": address, "MS_SCHED_PORT": "8118", "MS_TOPO_TIMEOUT": "600", "MS_WORKER_NUM": "2"}
    return {"RANK_SIZE": "2", "RANK_ID": str(rank), "MS_ROLE": role, **meeting, **own_values}


def test_the_processes_of_msrun_end_with_one_verdict(site: Site) -> None:
    """The scheduler is one of them: it runs the same script."""
    host = site.hosts[2]
    address = site.fleet.addresses[host]
    processes = [as_msrun(*launch, address) for launch in (("MS_SCHED", 0), ("MS_WORKER", 0), ("MS_WORKER", 1))]
    start = "\n".join(
        f"( {' '.join(f'{name}={value}' for name, value in env.items())} doctor preflight; echo code=$? ) &"
        for env in processes
    )
    (site.folder / "ms.sh").write_text(f"{start}\nwait\n")
    with site.closed_tmp(host):
        done = site.enter(host, "bash ms.sh")
    assert re.findall(r"^code=(\d+)$", done.stdout, re.MULTILINE) == ["10"] * 3, done
    assert len({line.partition(" t=")[0] for line in lines(done)}) == 1, done


@pytest.mark.skipif(not MSRUN, reason="MindSpore is not here; MSRUN=/path/to/bin/msrun runs this")
def test_msrun_starts_on_healthy_hosts_and_not_on_a_bad_one(site: Site) -> None:
    env = {"PATH": f"{Path(MSRUN).parent}:/usr/local/bin:/usr/bin:/bin", "MASTER_PORT": "8118"}
    done = on_two(site, "msrun", env)
    assert [launch.returncode for launch in done] == [0, 0], done
    bad = site.hosts[1]
    with site.closed_tmp(bad):
        done = [run(site, bad, "msrun", {**env, "NNODES": "2", "NODE_RANK": "1", "NPROC": "2", "MASTER_ADDR": bad})]
    assert (done[0].returncode, lines(done[0])[0].split()[2]) == (10, "FAIL"), done


# -- pods


IN_A_POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
LOG, TABLE = "/dev/termination-log", "/user/serverid/devindex/config/hccl.json"


def spec(name: str) -> Json:
    """Of the pod that a document of the README describes."""
    yaml = pytest.importorskip("yaml")
    full = yaml.safe_load(script(name))
    return full["spec"] if full["kind"] == "Pod" else full["spec"]["tasks"][0]["template"]["spec"]


@pytest.fixture
def pod(site: Site) -> str:
    """A host with what a pod has."""
    site.fleet.enter(site.hosts[2], f": >{LOG}")
    return site.hosts[2]


@pytest.mark.parametrize(("name", "containers"), [("init-container", "initContainers"), ("volcano", "containers")])
def test_a_container_of_the_readme_lets_the_pod_start_when_all_is_well(
    site: Site, pod: str, name: str, containers: str
) -> None:
    [container] = spec(name)[containers]
    mounted = {launch["name"] for launch in container["volumeMounts"]}
    assert mounted <= {launch["name"] for launch in spec(name)["volumes"]}
    done = site.enter(pod, shlex.join(container["command"]), IN_A_POD)
    assert done.returncode == 0, done
    with site.full_logs(pod):
        done = site.enter(pod, shlex.join(container["command"]), IN_A_POD)
    assert (done.returncode, trained(done.stdout)) == (10, []), done
    assert lines(done) == site.fleet.read(pod, LOG).splitlines()


def test_a_pod_that_looks_at_itself_waits_for_the_rank_table(site: Site, pod: str) -> None:
    site.fleet.enter(pod, f'mkdir -p {Path(TABLE).parent} && echo \'{{"status": "initializing"}}\' >{TABLE}')
    try:
        done = site.enter(pod, "doctor preflight --scope local --budget 8s", IN_A_POD)
    finally:
        site.fleet.enter(pod, f"rm {TABLE}")
    assert done.returncode == 12, done
    assert "why=rank-table-not-complete" in done.stdout

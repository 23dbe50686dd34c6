"""What a healthy job prints and its exit code, under `doctor watch` in a real Slurm and Open MPI on two hosts."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.hosts.fleet import Fleet
from tests.hosts.slurm import needs_mpirun, needs_slurm
from tests.jobs.site import Site
from tests.smoke.interpreter import ROOT

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.full,
    pytest.mark.torch,
    needs_slurm,
    needs_mpirun,
    pytest.mark.timeout(600),
]

PROGRAM = r"""import os, sys, time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
kind = sys.argv[1]
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
replica = DistributedDataParallel(model) if kind != "inference" else model
optimizer = torch.optim.SGD(replica.parameters(), lr=0.1) if kind != "inference" else None
batches = torch.Generator().manual_seed(100 + rank)
for step in range(12):
    if kind == "evaluation" and step == 6:
        dist.barrier()
        if rank == 0:
            with torch.no_grad():
                for _ in range(30):
                    model(torch.randn(4, 8)), time.sleep(0.05)
        dist.barrier()
    if kind == "slow start" and step == 0 and rank == 1:
        time.sleep(3)
    loss = replica(torch.randn(4, 8, generator=batches)).square().mean()
    if optimizer:
        optimizer.zero_grad(), loss.backward(), optimizer.step()
    else:
        dist.all_reduce(loss.detach())
    os.write(1, b"%d \xff\xfe\r\x1b[2K loss %.6f\n" % (step, loss.item()))
    os.write(2, b"\xe4 warn\x00ing %d\r\n" % step)
os.write(1, "字 no end of line".encode()[:-2])
os.write(2, b"\xe5\xad")
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def site(make_fleet: Callable[..., Fleet]) -> Iterator[Site]:
    site = Site(make_fleet, 2, name="streams", subnet="10.86.0.0/16")
    try:
        (site.folder / "program.py").write_text(PROGRAM)
        site.start_slurm("MinJobAge=60\n")
        yield site
    finally:
        site.end()


def outcome(
    site: Site, launcher: str, kind: str, code: int, *, watched: bool
) -> tuple[int, list[bytes], list[bytes], str]:
    """The exit code of the launcher, what each rank wrote to both streams, and what doctor said."""
    watch = f"{shlex.quote(sys.executable)} -m doctor watch --patience 20 -- " if watched else ""
    number = "${SLURM_PROCID:-$OMPI_COMM_WORLD_RANK}"
    values = f"PYTHONPATH={ROOT} OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=eth0 HOME={site.folder} DOCTOR_HISTORY=off"
    values += " TORCH_CPP_LOG_LEVEL=ERROR"  # its warnings have the time of day
    values += f" MASTER_ADDR={site.fleet.addresses[site.hosts[0]]} MASTER_PORT=29500"
    command = f"{shlex.quote(sys.executable)} {site.folder}/program.py {kind} && exit {code}"
    train = f"{watch}sh -c {shlex.quote(command)}"
    into = f"{site.folder}/{number}"
    inner = f"export {values} RANK={number} WORLD_SIZE=2; exec {train} >{into}.out 2>{into}.err"
    if launcher == "srun":
        argv = ["srun", "-N2", "-n2", "--chdir=/tmp", "sh", "-c", inner]
    else:
        hosts, names = site.folder / "hosts", site.folder / "ssh_config"
        hosts.write_text("".join(f"{name} slots=1\n" for name in site.hosts))
        places = "".join(f"Host {name}\n HostName {place}\n" for name, place in site.fleet.addresses.items())
        names.write_text(places + site.fleet.ssh_config.read_text())
        argv = ["mpirun", "--allow-run-as-root", "--hostfile", str(hosts), "-np", "2", "--wdir", "/tmp"]
        argv += ["--mca", "plm_rsh_agent", f"ssh -F {names}", "sh", "-c", inner]
    done = site.fleet.run(argv, cwd=site.folder, env=site.environ, timeout=200)
    streams = [[(site.folder / f"{rank}.{name}").read_bytes() for rank in (0, 1)] for name in ("out", "err")]
    own = [stream.partition(b"doctor watch: ") for stream in streams[1]]
    said = b"".join(word + rest for _, word, rest in own).decode("utf-8", "replace")
    return done.returncode, streams[0], [before for before, _, _ in own], said


@pytest.mark.parametrize("launcher", ["srun", "mpirun"])
@pytest.mark.parametrize(("kind", "code"), [("replicas", 0), ("evaluation", 0), ("'slow start'", 37), ("inference", 3)])
def test_a_healthy_job_prints_and_ends_as_without_doctor_and_is_not_accused(
    site: Site, launcher: str, kind: str, code: int
) -> None:
    alone = outcome(site, launcher, kind, code, watched=False)
    watched = outcome(site, launcher, kind, code, watched=True)
    assert alone[0] == code and b"loss" in alone[1][0]
    assert (watched[0], watched[1]) == (alone[0], alone[1])
    assert [text.rstrip(b"\n") for text in watched[2]] == [text.rstrip(b"\n") for text in alone[2]]
    assert "smoke-" not in watched[3] and "2 of 2 ranks" in watched[3], watched[3]

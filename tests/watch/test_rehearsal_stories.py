"""Stories that only the view of each rank shows, on real hosts: the rehearsal's verdict, and the real job beside it.

mpirun starts one gloo rank on each of three hosts over SSH, whose folders are one; what differs is in the login file of
one host or of all, in the launch line, or in a host itself.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.hosts.fleet import Fleet
from tests.hosts.slurm import needs_mpirun
from tests.smoke.interpreter import visible_folders

pytestmark = [
    pytest.mark.full,
    pytest.mark.torch,
    pytest.mark.timeout(590),
    needs_mpirun,
]
ROOT = Path(__file__).resolve().parents[2]
CLEAN = {
    name: text
    for name, text in os.environ.items()
    if not name.startswith(("DOCTOR_", "SLURM_", "OMPI_", "RANK", "LOCAL_", "WORLD_", "MASTER_", "PYTHON", "GLOO_"))
}
PROGRAM = """
import datetime, os
for name, source in (("RANK", "RANK"), ("WORLD_SIZE", "SIZE"), ("LOCAL_RANK", "LOCAL_RANK")):
    os.environ.setdefault(name, os.environ["OMPI_COMM_WORLD_" + source])
import torch, torch.distributed as dist
open(os.path.join(os.environ.get("TMPDIR", "/tmp"), "cache.%d" % os.getpid()), "w").close()
torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=12))
total = torch.ones(1)
dist.all_reduce(total)
assert total.item() == 3 == dist.get_world_size()
dist.barrier()
dist.destroy_process_group()  # a rank whose peers are gone aborts now and then as it ends without it (torch 2.13)
"""


class Story(NamedTuple):
    """What is wrong, where, and whether the real job dies of it."""

    script: str = ""
    """sh text for the second host."""
    everywhere: str = ""
    """For all of them."""
    options: tuple[str, ...] = ()
    """Of mpirun."""
    dies: bool = True
    is_sure: bool = True
    """False: the rehearsal warns only, as another program might live."""
    named: str = ""
    """Subject or check that names it; empty: the launcher itself fails, or nothing is wrong."""


def login(text: str) -> str:
    return f"echo 'export {text}' >>/root/.bashrc"


MASTER = login("MASTER_ADDR=$MASTER MASTER_PORT=29511")
STORIES = {
    "nothing": Story(dies=False),
    "master of an older job": Story(login("MASTER_ADDR=192.0.2.9"), MASTER, named="MASTER_ADDR"),
    "master is each host itself": Story("", MASTER.replace("$MASTER", "127.0.0.1"), named="master"),
    "port of an older job": Story(login("MASTER_PORT=29519"), MASTER, named="MASTER_PORT"),
    "port is no number": Story("", MASTER.replace("29511", "2951x"), named="port"),
    "port is out of range": Story("", MASTER.replace("29511", "295110"), named="port"),
    "rank of an interactive trial": Story(login("RANK=0"), named="RANK"),
    "rank of a trial on all hosts": Story("", login("RANK=0"), named="RANK"),
    "rank beyond the last": Story(login("RANK=3"), named="RANK"),
    "rank is no number": Story(login("RANK=one"), named="RANK"),
    "number of ranks of a trial": Story(login("WORLD_SIZE=1"), named="WORLD_SIZE"),
    "number of ranks of a trial on all": Story("", login("WORLD_SIZE=4"), named="WORLD_SIZE"),
    "number of ranks is empty text": Story(login("WORLD_SIZE=three"), named="WORLD_SIZE"),
    "interface that one host lacks": Story(login("GLOO_SOCKET_IFNAME=eth9"), named="GLOO_SOCKET_IFNAME"),
    "packages of another user on one host": Story(
        "mkdir -p /run/old/torch; echo raise ImportError >/run/old/torch/__init__.py; " + login("PYTHONPATH=/run/old"),
        is_sure=False, named="PYTHONPATH",
    ),
    "memory limit on one host": Story("echo 'ulimit -v 600000' >>/root/.bashrc", is_sure=False, named="address space"),
    "few open files on one host": Story("echo 'ulimit -n 12' >>/root/.bashrc"),
    "no slots for all": Story("", options=("-np", "4")),
    "a variable of one host that gloo does not read": Story(login("NVTE_DEBUG=1"), dies=False, named="NVTE_DEBUG"),
    "threads on one host": Story(login("OMP_NUM_THREADS=3"), dies=False, named="OMP_NUM_THREADS"),
    "small /dev/shm on one host": Story("mount -o remount,size=1m /dev/shm", dies=False, named="/dev/shm"),
    "a banner in one login file": Story("echo 'echo welcome' >>/root/.bashrc", dies=False),
    "a login file that ends with an error": Story("echo 'false' >>/root/.bashrc", dies=False),
    "a login file that leaves at once": Story("echo 'exit 0' >>/root/.bashrc"),
    "other languages on one host": Story(login("LANG=C LC_ALL=C"), dies=False),
    "stale local rank": Story(login("LOCAL_RANK=5"), dies=False),
    "core files on one host": Story("echo 'ulimit -c 0' >>/root/.bashrc", dies=False),
    "library path with nothing in it": Story(login("LD_LIBRARY_PATH=/opt/none"), dies=False, named="LD_LIBRARY_PATH"),
    "rank of a trial that is the right one": Story(login("RANK=1"), dies=False),
    "a folder for files that one host lacks": Story(login("TMPDIR=/scratch/none"), dies=False, named="TMPDIR"),
    "interface that all hosts lack": Story("", login("GLOO_SOCKET_IFNAME=eth9"), named="GLOO_SOCKET_IFNAME"),
    "loopback for the network of one host": Story(login("GLOO_SOCKET_IFNAME=lo"), dies=False),
    "another home of Python on one host": Story(login("PYTHONHOME=/opt/none")),
    "another time zone on one host": Story(login("TZ=Asia/Shanghai"), dies=False),
    "a name of the master that one host lacks": Story(
        "sed '/thehead/d' /etc/hosts >/run/hosts; cat /run/hosts >/etc/hosts",
        "echo '$MASTER thehead' >>/etc/hosts; " + MASTER.replace("$MASTER", "thehead"), named="MASTER_ADDR",
    ),
    "a name of the master that is loopback on one host": Story(
        "sed 's/.*thehead/127.0.1.1 thehead/' /etc/hosts >/run/hosts; cat /run/hosts >/etc/hosts",
        "echo '$MASTER thehead' >>/etc/hosts; " + MASTER.replace("$MASTER", "thehead"), named="master",
    ),
    "no master on one host": Story(login("MASTER_ADDR="), MASTER, named="MASTER_ADDR"),
    "a proxy on one host": Story(login("http_proxy=http://192.0.2.1:3128"), dies=False),
    "a firewall before the master's port": Story(
        "nft 'add table inet shut; add chain inet shut out { type filter hook output priority 0; };"
        " add rule inet shut out tcp dport 29511 drop'", named="master",
    ),
    "no route to the master": Story("ip route add blackhole $MASTER", named="master"),
    "the master's port is taken": Story(
        "", "python3 -c 'import socket, time; s = socket.create_server((str(), 29511)); time.sleep(300)'"
        " </dev/null >/dev/null 2>&1 &", named="29511",
    ),
    "no room for temporary files on one host": Story(  # mpirun's own daemon fails there
        "mkdir -p /run/full; mount -t tmpfs -o size=64k,nr_inodes=1 none /run/full; " + login("TMPDIR=/run/full"),
    ),
    "temporary files may not be written on one host": Story(
        "mkdir -p /run/fixed; mount -t tmpfs -o ro none /run/fixed; " + login("TMPDIR=/run/fixed"),
    ),
    "a limit of CPU time on one host": Story("echo 'ulimit -t 1' >>/root/.bashrc", is_sure=False, named="cpu time"),
    "a login that takes long on one host": Story("echo 'sleep 9' >>/root/.bashrc", dies=False),
    "library preloaded that is not there": Story(login("LD_PRELOAD=/opt/none.so"), dies=False, named="LD_PRELOAD"),
}  # fmt: skip


class Rehearsals:
    """Three hosts, a shared folder, and mpirun's line."""

    def __init__(self, fleet: Fleet, folder: Path) -> None:
        self.fleet, self.folder, self.hosts = fleet, folder, fleet.hosts[:3]
        self.master = fleet.addresses[self.hosts[0]]
        (folder / "train.py").write_text(PROGRAM)
        names = "".join(f"Host {name}\n HostName {place}\n" for name, place in fleet.addresses.items())
        (folder / "ssh_config").write_text(names + fleet.ssh_config.read_text())

    def line(self, story: Story) -> list[str]:
        count = () if "-np" in story.options else ("-np", "3")
        argv = ["mpirun", "--allow-run-as-root", "--host", ",".join(self.hosts), *count, *story.options]
        argv += ["--mca", "plm_rsh_agent", f"ssh -F {self.folder}/ssh_config", "--wdir", str(self.folder)]
        if "MASTER_ADDR" not in story.everywhere:
            argv += ["-x", "MASTER_ADDR=" + self.master, "-x", "MASTER_PORT=29511"]
        return [*argv, sys.executable, "train.py"]

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        environ = {**CLEAN, "PYTHONPATH": str(ROOT), "DOCTOR_HISTORY": "off"}
        return self.fleet.run([*argv], env=environ, cwd=self.folder, timeout=150)

    def told(self, story: Story) -> list[str]:
        """What is wrong with the rehearsal's verdict beside the real job's end."""
        line = self.line(story)
        with self.fleet.broken(self.hosts):
            for host in self.hosts:
                text = story.everywhere + (f"\n{story.script}" if host == self.hosts[1] else "")
                self.fleet.enter(host, text.replace("$MASTER", self.master) or "true")
            done = self.run(sys.executable, "-m", "doctor", "rehearse", "--json", "--", *line)
            real = self.run("env", "PYTHONPATH=", "timeout", "60", *line)
        document = json.loads(done.stdout or "{}")
        rows = (*document.get("misfits", ()), *document.get("checks", ()))
        subjects = {f"{row['severity']} {json.dumps(row)}" for row in rows}
        errors = sorted(text for text in subjects if text.startswith("error"))
        wrong = []
        if (real.returncode != 0) != story.dies:
            wrong.append(f"the real job: exit {real.returncode}, {real.stderr[-300:]}")
        if (done.returncode != 0) != (story.dies and story.is_sure) or (done.returncode == 10 and not real.returncode):
            wrong.append(f"rehearse {done.returncode}, the real job {real.returncode}: {errors} {done.stderr[-200:]}")
        if story.named and not any(story.named.lower() in text.lower() for text in subjects):
            wrong.append(f"{story.named} is not named: {sorted(subjects)} {document.get('output')}")
        return wrong


@pytest.fixture(scope="module")
def rehearsals(make_fleet: Callable[..., Fleet]) -> Iterator[Rehearsals]:
    fleet = make_fleet(3, {"*": {"shows": visible_folders()}}, name="rhs", subnet="10.187.0.0/16")
    folder = Path(tempfile.mkdtemp(prefix="rehearsal-", dir="/var/tmp"))
    yield Rehearsals(fleet, folder)
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", STORIES)
def test_the_job_dies_where_the_rehearsal_says_so(name: str, rehearsals: Rehearsals) -> None:
    assert rehearsals.told(STORIES[name]) == []

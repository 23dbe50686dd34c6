"""Heterogeneous jobs of a real Slurm, each with a real gloo job over all components: preflight fails where it dies."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.hosts.fleet import Fleet
from tests.hosts.slurm import needs_slurm
from tests.jobs.site import ENDED, Site

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.timeout(240),
    needs_slurm,
]
PATIENCE = 170.0
"""Seconds that a job may take."""
PROGRAM = """
import os
from datetime import timedelta
import torch
import torch.distributed as dist
torch.set_num_threads(1)
os.environ["RANK"] = os.environ["SLURM_PROCID"]
dist.init_process_group("gloo", timeout=timedelta(seconds=int(os.environ["SECONDS_TO_WAIT"])))
value = torch.ones(70000)
dist.all_reduce(value)
dist.barrier()
print("sum", int(value[-1]), flush=True)
"""
SCRIPT = """#!/bin/bash
{exports}
doctor preflight --transport slurm --select connectivity --select kernel --budget 60 --report doctor.json
echo "preflight=$?"
timeout {seconds} srun --het-group={groups} --kill-on-bad-exit=1 {python} gloo.py
"""
TWO, THREE = ("--nodes=1", ":", "--nodes=2"), ("--nodes=1", ":", "--nodes=1", ":", "--nodes=1")
SETTING, REACH, MASTER = "interface-setting-wrong", "interface-unreachable", "master-address-wrong"
PATH, TAKEN, NAME = "peer-unreachable", "master-port-taken", "host-name-is-loopback"


class Row(NamedTuple):
    """A heterogeneous job, what is set in its script, the faults of hosts, and what becomes of it."""

    name: str
    lives: bool
    components: tuple[str, ...] = TWO
    environ: Mapping[str, str] = {}
    faults: Mapping[int, str] = {}
    """Shell text by host, counted from 1."""
    check: str = ""
    full: bool = True


def own_name(address: str) -> str:
    return f'sed "/ $(hostname)$/d" /run/hosts.kept >/etc/hosts; echo "{address} $(hostname)" >>/etc/hosts'


LISTEN = "python3 -c \"import socket, time; s = socket.create_server(('', 29500)); time.sleep(120)\" >/dev/null 2>&1 &"
LISTEN += " echo $! >/run/listener; until ss -Htln 'sport = :29500' | grep -q .; do sleep 0.05; done"
ROWS = [
    Row("two components", True),
    Row("three components", True, THREE),
    Row("the interface named", True, THREE, {"GLOO_SOCKET_IFNAME": "eth0"}),
    Row("the master by its name", True, TWO, {"MASTER_ADDR": "het0001"}),
    Row("own name loopback on one host of the second component", True, TWO, {}, {3: own_name("127.0.1.1")}, NAME),
    Row("no such interface", False, TWO, {"GLOO_SOCKET_IFNAME": "eno7"}, {}, SETTING),
    Row("an interface that the last component lacks", False, THREE, {"GLOO_SOCKET_IFNAME": "eth0:1"}, {3: "ip addr del 192.168.50.3/24 dev eth0"}, SETTING),
    Row("own names loopback in the second component", False, TWO, {}, dict.fromkeys((2, 3), own_name("127.0.1.1")), REACH),
    Row("the master is loopback", False, TWO, {"MASTER_ADDR": "127.0.0.1"}, {}, MASTER),
    Row("the master is a host of no component", False, TWO, {"MASTER_ADDR": "10.72.1.4"}, {}, MASTER),
    Row("no route between the second and the third component", False, THREE, {}, {3: "ip route add unreachable 10.72.1.2"}, PATH, full=False),
    Row("the master's port is taken", False, TWO, {}, {1: LISTEN}, TAKEN),
]  # fmt: skip
PREPARE = "cp /etc/hosts /run/hosts.kept; ip addr add 192.168.50.{number}/24 dev eth0 label eth0:1"
RESTORE = """{{
cat /run/hosts.kept >/etc/hosts
test -f /run/listener && kill $(cat /run/listener); rm -f /run/listener
ip route flush type unreachable
ip addr replace 192.168.50.{number}/24 dev eth0 label eth0:1
}} 2>/dev/null; true"""


@pytest.fixture(scope="module")
def site(make_fleet: Callable[..., Fleet]) -> Iterator[Site]:
    created_site = Site(make_fleet, 4, name="het", subnet="10.72.0.0/16")
    try:
        created_site.start_slurm(
            "SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1"
        )
        for number, host in enumerate(created_site.hosts, 1):
            created_site.fleet.enter(host, PREPARE.format(number=number))
        yield created_site
    finally:
        created_site.end()


def ended(site: Site, row: Row, folder: Path) -> str:
    """What the job's script printed."""
    folder.mkdir()
    environ = {"MASTER_ADDR": "10.72.1.1", "MASTER_PORT": "29500", "WORLD_SIZE": "3"}
    environ |= {"SECONDS_TO_WAIT": "60" if row.lives else "5", **row.environ}
    exports = "\n".join(f"export {name}={value}" for name, value in environ.items())
    groups = ",".join(str(number) for number in range(row.components.count(":") + 1))
    seconds = 100 if row.lives else 40
    text = SCRIPT.format(exports=exports, groups=groups, seconds=seconds, python=sys.executable)
    (folder / "job.sh").write_text(text)
    (folder / "gloo.py").write_text(PROGRAM)
    number = site.run("sbatch", "--parsable", *row.components, "job.sh", cwd=folder)
    deadline = time.monotonic() + PATIENCE
    while not ENDED.search(site.job(number)):
        assert time.monotonic() < deadline, f"job {number} goes on"
        time.sleep(0.5)
    return (folder / f"slurm-{number}.out").read_text()


@pytest.mark.parametrize(
    "row", [pytest.param(row, marks=[pytest.mark.full] if row.full else [], id=row.name) for row in ROWS]
)
def test_preflight_fails_exactly_where_the_job_dies(site: Site, row: Row) -> None:
    folder = site.folder / re.sub(r"\W", "_", row.name)
    try:
        for number, text in row.faults.items():
            site.fleet.enter(site.hosts[number - 1], text)
        output = ended(site, row, folder)
    finally:
        for number, host in enumerate(site.hosts, 1):
            site.fleet.enter(host, RESTORE.format(number=number))
    assert (output.count("sum 3") == 3) == row.lives, output
    assert f"preflight={0 if row.lives else 10}" in output, output
    report = json.loads((folder / "doctor.json").read_text())
    assert report["hosts"] == list(site.hosts[:3])
    assert not row.check or row.check in {setup["check"] for setup in report["outcomes"] if setup["findings"]}

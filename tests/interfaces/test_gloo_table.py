"""Environments of a job, each next to a real gloo job: `doctor check` fails exactly where the job dies."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.fleet import Fleet
from tests.interfaces.gloo_fleet import GlooFleet, gloo_fleet

ALL = (0, 1, 2)


@dataclass(frozen=True)
class Row:
    """One environment, and what becomes of a real job in it."""

    name: str
    lives: bool
    environ: Mapping[str, str] = field(default_factory=dict)
    setup: Mapping[int, str] = field(default_factory=dict)
    """Shell text for some of the hosts; $N is the host's number from 1."""
    check: str = ""
    """The check that fails, or warns where the job lives."""
    hosts: tuple[int, ...] = ()
    """The hosts that it names."""
    full: bool = True


def own_name(address: str) -> str:
    """Gives the host's own name one address."""
    return f'sed "/ $(hostname)$/d" /run/hosts.kept >/etc/hosts; echo "{address} $(hostname)" >>/etc/hosts'


def gloo(value: str) -> dict[str, str]:
    return {"GLOO_SOCKET_IFNAME": value}


def master(value: str) -> dict[str, str]:
    return {"MASTER_ADDR": value}


ALIAS = dict.fromkeys(ALL, own_name("192.168.50.$N"))
SETTING, REACH, MASTER, NAME = (
    "interface-setting-wrong",
    "interface-unreachable",
    "master-address-wrong",
    "host-name-is-loopback",
)
ROWS = [
    Row("nothing set", True),
    Row("exact name", True, gloo("eth0"), full=False),
    Row("comma at the end", True, gloo("eth0,")),
    Row("one letter is ignored", True, gloo("x")),
    Row("an alias", True, gloo("eth0:1")),
    Row("NCCL's variable without a GPU", True, {"NCCL_SOCKET_IFNAME": "eno7"}),
    Row("docker0 everywhere", False, gloo("docker0"), check=REACH, hosts=ALL, full=False),
    Row("lo", False, gloo("lo"), check=REACH, hosts=ALL),
    Row("a second name that is lo", False, gloo("eth0,lo"), check=REACH, hosts=ALL),
    Row("no such interface", False, gloo("eno7"), check=SETTING, hosts=ALL),
    Row("a prefix", False, gloo("eth"), check=SETTING, hosts=ALL),
    Row("exclusion as in NCCL", False, gloo("^lo,docker0"), check=SETTING, hosts=ALL),
    Row("equals sign as in NCCL", False, gloo("=eth0"), check=SETTING, hosts=ALL),
    Row("an address", False, gloo("10.75.1.1"), check=SETTING, hosts=ALL),
    Row("a space", False, gloo("eth0, eth0"), check=SETTING, hosts=ALL),
    Row("missing on one host", False, gloo("eth0:1"), {1: "ip addr del 192.168.50.$N/24 dev eth0"}, SETTING, (1,)),
    Row(
        "docker0 of three networks without a route",
        False,
        gloo("docker0"),
        dict.fromkeys(ALL, "ip addr flush dev docker0; ip addr add 172.2$N.0.1/16 dev docker0"),
        check=REACH,
    ),
    Row("own name loopback on one host", True, {}, {1: own_name("127.0.1.1")}, NAME, (1,)),
    Row("own name loopback on two", False, {}, dict.fromkeys((1, 2), own_name("127.0.1.1")), REACH, (1, 2)),
    Row("own name loopback, and the interface set", True, gloo("eth0"), dict.fromkeys(ALL, own_name("127.0.1.1"))),
    Row("own name loopback among greater addresses", False, {}, {**ALIAS, 1: own_name("127.0.1.1")}, REACH, (1,)),
    Row("own names of another network", True, {}, ALIAS),
    Row("own name of no interface on two", False, {}, dict.fromkeys((0, 2), own_name("10.9.9.9")), REACH, (0, 2)),
    Row("own name unknown on two", False, {}, dict.fromkeys((0, 1), own_name("#")), REACH, (0, 1)),
    Row("master by name", True, master("gl0001")),
    Row("master by its alias", True, master("192.168.50.1")),
    Row("master is loopback", False, master("127.0.0.1"), check=MASTER, hosts=ALL),
    Row("master is localhost", False, master("localhost"), check=MASTER, hosts=ALL),
    Row("master of no host", False, master("10.75.5.5"), check=MASTER, hosts=ALL),
    Row("master that no host resolves", False, master("nosuch.invalid"), check="master-address-unresolved", hosts=ALL),
    Row("master is docker0", False, master("172.17.0.1"), check=MASTER, hosts=ALL),
    Row("master's own name is loopback", True, {**master("gl0001"), **gloo("eth0")}, {0: own_name("127.0.1.1")}),
    Row(
        "master is loopback on another host",
        False,
        master("gl0001"),
        {2: 'sed "s/.* gl0001$/127.0.0.1 gl0001/" /run/hosts.kept >/etc/hosts'},
        MASTER,
        (2,),
    ),
    Row(
        "master is another host on one host",
        False,
        master("gl0001"),
        {2: 'sed "/ gl0001$/d" /run/hosts.kept >/etc/hosts; echo "192.168.50.2 gl0001" >>/etc/hosts'},
        MASTER,
        (2,),
    ),
]
PREPARE = """\
cp /etc/hosts /run/hosts.kept
ip link add docker0 type bridge && ip addr add 172.17.0.1/16 dev docker0 && ip link set docker0 up
ip addr add 192.168.50.$N/24 dev eth0 label eth0:1
"""
RESTORE = """\
cat /run/hosts.kept >/etc/hosts
ip addr flush dev docker0; ip addr add 172.17.0.1/16 dev docker0
ip addr replace 192.168.50.$N/24 dev eth0 label eth0:1
"""


def sh(fleet: Fleet, number: int, text: str) -> None:
    """Runs shell text in the host of that number, counted from 0."""
    fleet.enter(fleet.hosts[number], f"N={number + 1}\n{text}")


@pytest.fixture(scope="module")
def jobs(make_fleet: Callable[..., Fleet]) -> Iterator[GlooFleet]:
    """Three hosts with a docker0 of one address, and a second network on eth0."""
    created_gloo_fleet = gloo_fleet(make_fleet, 3, name="gl", subnet="10.75.0.0/16", shm="4g")
    for number in ALL:
        sh(created_gloo_fleet.fleet, number, PREPARE)
    yield created_gloo_fleet
    created_gloo_fleet.down()


def verdict(
    fleet: Fleet, environ: Mapping[str, str], areas: Sequence[str] = ("connectivity",), line: Sequence[str] = ()
) -> tuple[int, dict[str, Any]]:
    """Exit code of `doctor check`, and by check the hosts of its findings. ``line``: the launch line."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "MASTER", "RANK"))}
    argv = [sys.executable, "-m", "doctor", "check", ",".join(fleet.hosts), "-F", str(fleet.ssh_config), "--json"]
    selected = [word for area in areas for word in ("--select", area)]
    launch = ["--", *line] if line else []
    done = fleet.run([*argv, *selected, *launch], env={**clean, **environ}, cwd=Path(__file__).parents[2], timeout=100)
    assert done.stdout, done.stderr
    outcomes = json.loads(done.stdout)["outcomes"]
    assert not any(setup["crashed"] for setup in outcomes)
    return done.returncode, {
        setup["check"]: {host for finding in setup["findings"] for host in finding["hosts"]}
        for setup in outcomes
        if setup["findings"]
    }


@pytest.mark.hosts
@pytest.mark.parametrize(
    "row", [pytest.param(row, marks=[pytest.mark.full] if row.full else [], id=row.name) for row in ROWS]
)
def test_doctor_fails_exactly_where_the_job_dies(jobs: GlooFleet, row: Row) -> None:
    fleet = jobs.fleet
    try:
        for number, text in row.setup.items():
            sh(fleet, number, text)
        code, results = verdict(fleet, row.environ)
        end = jobs.run(row.environ, seconds=60 if row.lives else 3)
    finally:
        for number in ALL:
            sh(fleet, number, RESTORE)
    assert end.lives == row.lives, end.messages
    assert code == (0 if row.lives else 10), results
    if row.check:
        assert row.check in results
        if row.hosts:
            assert results[row.check] == {fleet.hosts[number] for number in row.hosts}

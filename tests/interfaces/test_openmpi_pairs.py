"""Interface settings of Open MPI, each next to a real mpirun: an error exactly where the job dies."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.fleet import INSIDE, Fleet
from tests.hosts.slurm import needs_mpirun

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.full,
    needs_mpirun,
]
PROGRAM = """
import ctypes
mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
world, byte = (ctypes.byref(ctypes.c_char.in_dll(mpi, name)) for name in ("ompi_mpi_comm_world", "ompi_mpi_byte"))
mpi.MPI_Init(None, None)
size = ctypes.c_int()
mpi.MPI_Comm_size(world, ctypes.byref(size))
for count in 8 * [100, 300000]:  # ranks take the interfaces in turn
    buffers = [ctypes.create_string_buffer(count * size.value) for _ in range(2)]
    mpi.MPI_Alltoall(buffers[0], count, byte, buffers[1], count, byte, world)
print("barrier", mpi.MPI_Barrier(world), flush=True)
mpi.MPI_Finalize()
"""
SETTING, REACH = "interface-setting-wrong", "interface-unreachable"
DOUBT = "interface-doubtful"
"""A warning, since a program that does not send by MPI lives."""
ROWS = [
    ("", DOUBT),
    ("--mca btl_tcp_if_exclude lo", DOUBT),
    ("--mca btl_tcp_if_exclude 127.0.0.0/8,172.17.0.0/16", ""),
    ("--mca btl_tcp_if_include eth0", ""),
    ("--mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0", ""),
    ("--mca btl_tcp_if_include 10.70.0.0/16", ""),
    ("--mca btl_tcp_if_exclude lo,docker0", ""),
    ("--mca btl_tcp_if_include eno7", SETTING),
    ("--mca btl_tcp_if_include eth0,eno7", SETTING),
    ("--mca btl_tcp_if_include docker0", REACH),
    ("--mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eno7", SETTING),
    ("--mca btl_tcp_if_include eth0 --mca oob_tcp_if_include lo", REACH),
    ("--mca btl_tcp_if_include eth0 --mca oob_tcp_if_include docker0", REACH),
]


@pytest.fixture(scope="module")
def fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    """Two hosts with a docker0 of one address, whose roots reach each other by SSH."""
    created_fleet = make_fleet(2, name="om", subnet="10.70.0.0/16", shm="1g")
    key = (created_fleet.directory / "id_ed25519").read_text()
    for host in created_fleet.hosts:
        created_fleet.enter(
            host,
            "mkdir -p -m 700 /root/.ssh && cat >/root/.ssh/known_hosts",
            input=created_fleet.known_hosts.read_text(),
        )
        created_fleet.enter(host, "umask 077 && cat >/root/.ssh/id_ed25519", input=key)
        created_fleet.enter(host, "cat >/tmp/program.py", input=PROGRAM)
        created_fleet.enter(
            host, "ip link add docker0 type bridge; ip addr add 172.17.0.1/16 dev docker0; ip link set docker0 up"
        )
    return created_fleet


def launch(fleet: Fleet, hosts: Sequence[str], options: str, seconds: int) -> tuple[bool, str, dict[str, Any], int]:
    """Whether the job lives, what it said, and the report and exit code of doctor about its launch line."""
    line = f"mpirun -np 2 -H {hosts[0]}:1,{hosts[1]}:1 {options} /usr/bin/python3 /tmp/program.py"
    environ = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_plm_rsh_agent": "ssh"}
    environ |= {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "tcp,self"}
    job = fleet.enter(hosts[0], f"timeout {seconds} {line}", env={**INSIDE, **environ}, check=False, timeout=150)
    lives = job.returncode == 0 and job.stdout.count("barrier 0") == 2
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "MASTER", "OMPI"))}
    argv = [sys.executable, "-m", "doctor", "check", ",".join(hosts), "-F", str(fleet.ssh_config), "--json"]
    argv += ["--select", "connectivity", "--", *line.split()]
    done = fleet.run(argv, env=clean, cwd=Path(__file__).parents[2], timeout=100)
    return lives, job.stderr, json.loads(done.stdout), done.returncode


def of_status(report: dict[str, Any], status: str) -> set[str]:
    """The checks with this outcome."""
    return {setup["check"] for setup in report["outcomes"] if setup["status"] == status}


@pytest.mark.parametrize(("options", "text"), ROWS, ids=[row[0] for row in ROWS])
def test_an_error_exactly_where_mpirun_dies(fleet: Fleet, options: str, text: str) -> None:
    lives, errors, report, code = launch(fleet, fleet.hosts, options, 20 if text else 100)
    assert lives == (not text), errors
    assert of_status(report, "failed") == ({text} if text else set())
    assert code == (10 if text in (SETTING, REACH) else 0)


CARDS = """\
ip link add link eth0 name {name} type macvlan mode bridge
ip addr add {address}/24 dev {name}
ip link set {name} up
{more}"""


def test_the_daemons_pass_over_the_bridges_of_virtual_machines(fleet: Fleet) -> None:
    """By the name alone: this one leads to the other host."""
    for number, host in enumerate(fleet.hosts, 1):
        fleet.enter(host, CARDS.format(name="virbr7", address=f"10.71.0.{number}", more=""))
    options = "--mca btl_tcp_if_include eth0 --mca oob_tcp_if_include virbr7"
    lives, errors, report, code = launch(fleet, fleet.hosts, options, 20)
    for host in fleet.hosts:
        fleet.enter(host, "ip link del virbr7")
    assert not lives, errors
    assert (of_status(report, "failed"), code) == ({SETTING}, 10)


def test_the_daemons_connect_to_that_of_mpirun(fleet: Fleet) -> None:
    """The second host's eno9 leads nowhere. Open MPI 4.1 minds it where mpirun runs on that host."""
    first, second = fleet.hosts
    fleet.enter(first, CARDS.format(name="eno9", address="10.72.0.1", more=""))
    fleet.enter(second, CARDS.format(name="eno9", address="10.73.0.1", more="ip route add 10.72.0.0/24 dev eth0"))
    options = "--mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eno9"
    from_first = launch(fleet, (first, second), options, 100)
    from_second = launch(fleet, (second, first), options, 20)
    for host in fleet.hosts:
        fleet.enter(host, "ip link del eno9")
    lives, errors, report, code = from_first
    assert lives, errors
    assert (of_status(report, "failed"), code) == (set(), 12)
    assert REACH in of_status(report, "unknown")  # Open MPI 5 starts no daemon there
    lives, errors, report, code = from_second
    assert not lives, errors
    assert (of_status(report, "failed"), code) == ({REACH}, 10)

"""torchrun on several hosts, next to `doctor check` of its launch line: an error exactly where the real one ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from tests.attack.interfaces import RANK
from tests.hosts.fleet import Fleet
from tests.interfaces.gloo_fleet import GlooFleet, gloo_fleet
from tests.interfaces.test_gloo_table import PREPARE, RESTORE, own_name, sh, verdict

pytestmark = [pytest.mark.hosts, pytest.mark.full, pytest.mark.timeout(900)]
MASTER, LO = "master-address-wrong", "loopback-down"
C10D = "--rdzv-backend c10d --rdzv-id pair --rdzv-endpoint"


class Row(NamedTuple):
    """A launch, what is done to some hosts, and who is to blame where it ends."""

    name: str
    options: str
    setup: dict[int, str]
    guilty: tuple[int, ...] = ()
    ranks: int = 1
    """On each host."""
    check: str = MASTER


LOOPBACK, LO_DOWN = own_name("127.0.1.1"), "ip link set lo down"
ROWS = [
    Row("the endpoint by address", f"{C10D} 10.68.1.1", {}),
    Row("its host has Debian's line in /etc/hosts", f"{C10D} 10.68.1.1", {0: LOOPBACK}, (0,)),
    Row("the endpoint by the name that is loopback there", f"{C10D} rv0001", {0: LOOPBACK}),
    Row("another host has no address for its own name", f"{C10D} 10.68.1.1", {1: own_name("#")}, (1,)),
    Row("the master by address", "--master-addr 10.68.1.1", {0: LOOPBACK}),
    Row("lo is down beside one rank", "--master-addr 10.68.1.1", {1: LO_DOWN}),
    Row("lo is down beside one rank and the store", "--master-addr 10.68.1.1", {0: LO_DOWN}, (0,), check=LO),
    Row("lo is down between two ranks", "--master-addr 10.68.1.1", {1: LO_DOWN}, (1,), 2, LO),
    Row("lo is up between two ranks", "--master-addr 10.68.1.1", {}, (), 2, LO),
]
INTERFACE = {"GLOO_SOCKET_IFNAME": "eth0"}
"""Gloo, too, goes by the own name; here it does not."""


@pytest.fixture(scope="module")
def jobs(make_fleet: Callable[..., Fleet]) -> Iterator[GlooFleet]:
    created_gloo_fleet = gloo_fleet(make_fleet, 2, name="rv", subnet="10.68.0.0/16", shm="4g")
    for number, host in enumerate(created_gloo_fleet.fleet.hosts):
        sh(created_gloo_fleet.fleet, number, PREPARE)
        created_gloo_fleet.fleet.enter(host, "cat >/root/rank.py", input=RANK)
    yield created_gloo_fleet
    created_gloo_fleet.down()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_an_error_exactly_where_torchrun_ends(jobs: GlooFleet, row: Row) -> None:
    fleet, lives = jobs.fleet, not row.guilty
    seconds = 60 if lives else 5
    line = ["--nnodes", "2", "--nproc-per-node", str(row.ranks), *row.options.split()]
    static = "c10d" not in row.options
    waits = f"timeout={seconds}" if static else f"join_timeout={3 * seconds},read_timeout={seconds},last_call_timeout=1"
    argv = {
        host: [*(["--node-rank", str(number)] if static else []), *line, "--rdzv-conf", waits, "/root/rank.py"]
        for number, host in enumerate(fleet.hosts)
    }
    try:
        for number, text in row.setup.items():
            sh(fleet, number, text)
        code, results = verdict(fleet, INTERFACE, line=["torchrun", *line, "/root/rank.py"])
        end = jobs.run_torchrun({**INTERFACE, "ATTACK_SECONDS": str(seconds)}, argv, seconds)
    finally:
        for number in range(len(fleet.hosts)):
            sh(fleet, number, "ip link set lo up\n" + RESTORE)
    assert end.lives == lives, end.messages
    assert code == (0 if lives else 10), results
    assert results.get(row.check, set()) == {fleet.hosts[number] for number in row.guilty}

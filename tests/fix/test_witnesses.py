"""A firewall is opened to hosts that have proven their address, not to a stranger whose address and card one claims."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hosts.fleet import Fleet

ROOT = Path(__file__).parents[2]
HOSTS = ("sb0001", "sb0002", "sb0003", "sb0004")
CARD = "02:95:00:00:66:66"
CLOSED = """
table inet f {
  chain in {
    type filter hook input priority 0; policy drop;
    iif lo accept
    ct state established,related accept
    tcp dport 22 accept
  }
}
"""


def second_network(fleet: Fleet, number: int, address: str, card: str) -> None:
    """A network with cards of its own, that SSH does not use."""
    fleet.enter(
        HOSTS[number],
        f"ip link add link eth0 name eth1 address {card} type macvlan mode bridge && ip link set eth1 up"
        f" && ip address add {address}/16 dev eth1",
    )


@pytest.mark.full
@pytest.mark.hosts
@pytest.mark.timeout(300)
def test_a_host_with_the_address_and_the_card_of_a_stranger(make_fleet: Callable[..., Fleet], tmp_path: Path) -> None:
    fleet = make_fleet(4)
    for number in (0, 1):
        second_network(fleet, number, f"10.95.0.{number + 1}", f"02:95:00:00:00:0{number + 1}")
    second_network(fleet, 3, "10.95.66.66", CARD)  # the stranger: it is in no list
    liar = (
        f"ip link add eth1 address {CARD} type veth peer name away && ip link set away up && ip link set eth1 up"
        " && ip address add 10.95.66.66/16 dev eth1"
    )
    fleet.enter(HOSTS[2], liar)
    fleet.nft(HOSTS[0], CLOSED)
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    arguments = ("fix", "firewall-blocks-job", "-w", "sb[0001-0003]", "-F", str(fleet.ssh_config))
    done = fleet.run([sys.executable, "-m", "doctor", *arguments], cwd=ROOT, env=environ, timeout=200)
    print(done.stdout)
    assert "10.95.0.2" in done.stdout, done.stdout + done.stderr
    assert "10.95.66.66" not in done.stdout, done.stdout

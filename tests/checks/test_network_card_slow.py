"""What network-card-slow finds."""

from __future__ import annotations

import pytest

from doctor.engine.fact import Output
from doctor.facts.host_settings import Bonds, NetworkCard, NetworkCards
from tests.checks.run_check import fleet, messages, run_check
from tests.facts.answers import learned

FAST = NetworkCards(cards={"eth1": NetworkCard(25000, "full")})


def test_equal_cards_and_other_names() -> None:
    assert messages(run_check("network-card-slow", fleet(3, FAST))) == []
    other = NetworkCards(cards={"eno1": NetworkCard(1000, "full")})
    assert messages(run_check("network-card-slow", {**fleet(3, FAST), "w4": [other]})) == []


def test_a_slower_card() -> None:
    hosts = {**fleet(3, FAST), "w4": [NetworkCards(cards={"eth1": NetworkCard(1000, "full")})]}
    assert messages(run_check("network-card-slow", hosts)) == [
        ("w4", "eth1 has 1000 Mbit/s; 3 of 4 hosts have 25000 Mbit/s")
    ]


def test_half_duplex_on_one_host() -> None:
    half = NetworkCards(cards={"eth1": NetworkCard(100, "half")})
    assert messages(run_check("network-card-slow", {"w1": [half]})) == [
        ("w1", "eth1 is half duplex; expected full duplex")
    ]


def ports(*speeds: int, product: str = "0x101d") -> NetworkCards:
    return NetworkCards(cards={f"eth{n}": NetworkCard(speed, "full", product) for n, speed in enumerate(speeds)})


def test_the_one_slower_port_of_its_kind_on_a_host() -> None:
    """Two slower ones are meant so, and so is a port of another kind of card."""
    assert messages(run_check("network-card-slow", {"w1": [ports(100000, 100000, 25000, 100000)]})) == [
        ("w1", "eth2 has 25000 Mbit/s; 3 of 4 ports of its kind have 100000 Mbit/s")
    ]
    assert messages(run_check("network-card-slow", {"w1": [ports(100000, 25000, 25000, 100000)]})) == []
    assert messages(run_check("network-card-slow", {"w1": [ports(100000, 100000, 25000)]})) == []
    assert messages(run_check("network-card-slow", {"w1": [ports(10000, 10000, 1000, 10000)]})) == []  # of management
    mixed = {**ports(100000, 100000, 100000, 100000).cards, "eno1": NetworkCard(1000, "full", "0x1521")}
    assert messages(run_check("network-card-slow", {"w1": [NetworkCards(cards=mixed)]})) == []


def test_a_port_is_named_once() -> None:
    usual, slow = ports(100000, 100000, 100000, 100000), ports(100000, 100000, 25000, 100000)
    ((host, text),) = messages(run_check("network-card-slow", {**fleet(3, usual), "w4": [slow]}))
    assert host == "w4" and text.startswith("eth2 has 25000 Mbit/s; 3 of 4 hosts")


def bond(mode: str, *members: str, aggregator: str = "") -> Bonds:
    """As /proc/net/bonding shows it: ``members``: name, status, speed and aggregator."""
    active = f"Active Aggregator Info:\n\tAggregator ID: {aggregator}\n" if aggregator else ""
    text = f"Ethernet Channel Bonding Driver: v5.15.0\n\nBonding Mode: {mode}\nMII Status: up\n{active}"
    for member in members:
        name, status, speed, *group = member.split()
        text += f"\nSlave Interface: {name}\nMII Status: {status}\nSpeed: {speed}{' Mbps' * speed.isdecimal()}\n"
        text += f"Aggregator ID: {group[0]}\ndetails actor lacp pdu:\n    system priority: 65535\n" if group else ""
    fact = learned(Bonds, {"/proc/net/bonding/bond0": Output(out=text)})
    assert isinstance(fact, Bonds) and not fact.unread
    return fact


LACP, BACKUP = "IEEE 802.3ad Dynamic link aggregation", "fault-tolerance (active-backup)"


@pytest.mark.parametrize(
    ("bonds", "text"),
    [
        (bond(LACP, "eth0 up 25000 1", "eth1 up 25000 1", aggregator="1"), ""),
        # https://github.com: a bond of two ports of ConnectX, public file 69682374607
        (
            bond(LACP, "ens1f0np0 up 25000 1", "ens1f1np1 down 25000 1", aggregator="1"),
            "ens1f1np1, a member of bond0, has the link status down; expected up",
        ),
        # Public file 14464557263, and public file 36332802470 with the speed that the port had before
        (bond(BACKUP, "enp2s0 up 1000", "enp3s0 down Unknown"), "enp3s0, a member of bond0, has the link status down"),
        (bond(BACKUP, "eth1 down 1000", "eth2 up 1000"), "eth1, a member of bond0, has the link status down"),
        (
            bond(LACP, "eth0 up 25000 1", "eth1 up 25000 2", aggregator="1"),
            "eth1 carries no packets of bond0: its LACP group is 2, not 1",
        ),
        (
            bond(LACP, "eth0 up 25000", "eth1 up 10000"),
            "eth1 has 10000 Mbit/s; another member of bond0 has 25000 Mbit/s",
        ),
        (bond(BACKUP, "eth0 up 25000", "eth1 up 1000"), ""),
        (bond(BACKUP, "ens11 up Unknown", "ens3 up Unknown"), ""),  # of virtual machines, public file 20910290123
    ],
)
def test_members_of_a_bond(bonds: Bonds, text: str) -> None:
    found = run_check("network-card-slow", {"w1": [ports(25000), bonds]}).findings
    assert len(found) == bool(text)
    assert all(str(finding).startswith(text) for finding in found)


@pytest.mark.parametrize(
    "output",
    [
        Output(out="Bonding Mode: load balancing (xor)\nMII Status: up\n\nSlave Interface: eth0\n"),
        Output(out="Bonding Mode: load balancing (xor)\nMII Status: up\n", cut=True),
        Output(ended="error", err="Input/output error"),
        Output(out=""),
    ],
)
def test_a_bond_that_cannot_be_read_is_unknown(output: Output) -> None:
    bonds = learned(Bonds, {"/proc/net/bonding/bond0": output})
    outcome = run_check("network-card-slow", {"w1": [ports(25000), bonds]})
    assert not outcome.findings and outcome.unknown

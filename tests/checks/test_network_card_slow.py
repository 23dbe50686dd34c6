"""What network-card-slow finds."""

from __future__ import annotations

from doctor.facts.host_settings import NetworkCard, NetworkCards
from tests.checks.run_check import fleet, messages, run_check

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

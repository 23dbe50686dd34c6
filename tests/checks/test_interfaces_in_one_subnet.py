import pytest

from doctor.facts.interfaces import Interfaces, Link
from tests.checks.network import interfaces, link
from tests.checks.run_check import messages, run_check, skipped

NAME = "interfaces-in-one-subnet"


def test_two_networks() -> None:
    assert messages(run_check(NAME, {"w1": [interfaces(eth0="10.0.0.1/24", eth1="10.0.1.1/24")]})) == []


def test_two_cards_in_one() -> None:
    outcome = run_check(NAME, {"w1": [interfaces(eth0="10.0.0.1/24", eth1="10.0.0.2/24")]})
    assert messages(outcome) == [
        ("w1", "several interfaces have an address in 10.0.0.0/24: eth0: 10.0.0.1, eth1: 10.0.0.2")
    ]


def test_the_way_of_each_address_can_be_typed() -> None:
    (finding,) = run_check(NAME, {"w1": [interfaces(eth0="fd00::1/64", eth1="fd00::2/64")]}).findings
    assert finding.values["routing"].split("; ")[2:] == [
        "ip -6 route replace fd00::/64 dev eth1 src fd00::2 table 102",
        "ip -6 rule add from fd00::2 table 102",
    ]
    (finding,) = run_check(NAME, {"w1": [interfaces(**{"eth0": "10.0.0.1/24", "`id`": "10.0.0.2/24"})]}).findings
    assert finding.values["routing"] == "ip -br address"


PORT = Link("eth1", True, True, False, 1500, "", True, True)


@pytest.mark.parametrize(
    "host",
    [
        interfaces(eth0="10.0.0.1/24 10.0.0.2/24"),
        interfaces(link("eth1", up=False), eth0="10.0.0.1/24", eth1="10.0.0.2/24"),
        interfaces(link("macvlan0", kind="macvlan"), eth0="10.0.0.1/24", macvlan0="10.0.0.2/24"),
        interfaces(eth0="10.0.0.1/24", docker0="10.0.0.2/24"),
        interfaces(eth0="10.0.0.1/32", eth1="10.0.0.1/32"),
        interfaces(eth0="fe80::1/64", eth1="fe80::2/64"),
        interfaces(PORT, bond0="10.0.0.1/24", eth1="10.0.0.2/24"),
        interfaces(eth0="10.0.0.1/24", eth1="10.0.0.129/25"),
    ],
)
def test_what_shares_a_card_or_a_name(host: Interfaces) -> None:
    assert messages(run_check(NAME, {"w1": [host]})) == []


def test_policy_routing_is_meant() -> None:
    host = interfaces(eth0="10.0.0.1/24", eth1="10.0.0.2/24", has_rules=True)
    assert skipped(run_check(NAME, {"w1": [host]})) == {"the host has rules for policy routing"}

from __future__ import annotations

from typing import Any

import pytest

from doctor.facts.network import HostAddresses, InterfaceAddress
from tests.checks.net_answers import HEALTHY, answers
from tests.checks.run_check import advice, messages, run_check
from tests.facts.firewall_hosts import brought, rules
from tests.facts.test_firewall import nft

NAME = "net-flows-lost"
SOME = "9 of 32 source ports fail each time, such as 40001, and 23 pass each time, such as 40002"


def test_a_network_on_which_every_flow_passes_has_no_finding() -> None:
    assert messages(run_check(NAME, HEALTHY)) == []


def test_one_of_the_equal_paths_to_a_host_is_broken() -> None:
    details = {source: [{"target": 1, "port": 0, "detail": SOME}] for source in (0, 2, 3)}
    outcome = run_check(NAME, answers([["-foo", "o-oo", "of-o", "ofo-"]] * 2, details=details))
    ((hosts, text),) = messages(outcome)
    assert hosts == "w2"
    assert f"some connections to w2 fail depending on their source port: {SOME}" in text
    assert "/proc/net/bonding" in advice(NAME, outcome)


def test_the_way_back_of_one_direction_is_not_accused_as_well() -> None:
    """Both hosts' connections fail; that of the first has arrived, so that the way from the second is broken."""
    rows = ["-foo", "f-oo", "oo-o", "ooo-"]
    outcome = run_check(NAME, answers([rows] * 2, arrived={0: [(1, 0), (1, 1)]}))
    ((hosts, text),) = messages(outcome)
    assert hosts == "w1 w2"
    assert "some connections from w2 to w1 fail" in text


def test_a_port_that_is_blocked_is_another_checks() -> None:
    assert (
        messages(run_check(NAME, answers([["-ooo", "o-oo", "oo-o", "ooo-"], ["-doo", "o-oo", "od-o", "odo-"]]))) == []
    )


JHASH = {"mod": 2, "expr": {"payload": {"protocol": "tcp", "field": "sport"}}}
DROPS_BY_HASH = [{"match": {"op": "==", "left": {"jhash": JHASH}, "right": 1}}, {"drop": None}]
OF_ONE_PORT = {"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 22}}


@pytest.mark.parametrize(
    ("rule", "at", "is_named"),
    [
        (DROPS_BY_HASH, "w2", True),
        (DROPS_BY_HASH, "w3", False),  # neither end of the path
        ([OF_ONE_PORT, *DROPS_BY_HASH], "w2", False),  # of one service
        ([DROPS_BY_HASH[0], {"accept": None}], "w2", False),
    ],
)
def test_the_rule_that_drops_by_a_hash_is_named_with_its_command(rule: Any, at: str, is_named: bool) -> None:
    """Of one direction, from the first host to the second."""
    details = {0: [{"target": 1, "port": 0, "detail": SOME}]}
    facts = answers([["-foo", "o-oo", "oo-o", "ooo-"]] * 2, details=details)
    for number, (host, answered) in enumerate(facts.items(), start=1):
        addresses = HostAddresses(interfaces=(InterfaceAddress("eth0", f"10.1.0.{number}", 24),))
        ruleset = nft([{"counter": None}], rule) if host == at else brought()
        facts[host] = [*answered, addresses, rules(ruleset, f"10.1.0.{number}")]
    outcome = run_check(NAME, facts)
    ((_, text),) = messages(outcome)
    assert ("on w2 drops some" in text) is is_named
    printed = advice(NAME, outcome)
    assert ("As root on w2: `nft delete rule inet f c handle 1` deletes" in printed) is is_named
    assert ("`nft delete rule <family>" in printed) is not is_named

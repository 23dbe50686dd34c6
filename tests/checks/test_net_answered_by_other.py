from __future__ import annotations

import pytest

from doctor.engine.fact import Fact
from doctor.facts.firewall.redirects import delete_command
from doctor.facts.firewall.rules import Chain, Rule, RuleTable
from doctor.facts.firewall.walk import WalkPosition
from doctor.facts.network import HostAddresses, InterfaceAddress
from tests.checks.net_answers import HEALTHY, answers
from tests.checks.run_check import advice, messages, run_check
from tests.facts.firewall_hosts import brought, rules, saved

NAME = "net-answered-by-other"


def test_hosts_that_answer_for_themselves_have_no_finding() -> None:
    assert messages(run_check(NAME, HEALTHY)) == []


def test_two_hosts_with_one_address() -> None:
    rows = [["-owo", "o-wo", "oo-o", "oow-"]] * 2
    detail = [{"target": 2, "port": port, "answered_by": 1} for port in (0, 1)]
    ((hosts, text),) = messages(run_check(NAME, answers(rows, details={0: detail, 1: detail, 3: detail})))
    assert set(hosts.split()) == {"w2", "w3"}
    assert "w2 and w3 answer to one address" in text


def test_a_stranger_on_the_way() -> None:
    detail = [{"target": 1, "port": 1, "detail": "SSH-2.0-OpenSSH_9.2"}]
    rows = [["-ooo", "o-oo", "oo-o", "ooo-"], ["-soo", "o-oo", "os-o", "oso-"]]
    outcome = run_check(NAME, answers(rows, details={0: detail}))
    ((hosts, text),) = messages(outcome)
    assert hosts == "w2"
    assert "3 of 3 attempts on an ephemeral port (stranger; SSH-2.0-OpenSSH_9.2)" in text
    assert "nft -a list" in advice(NAME, outcome)


def behind_rules(*rules_of_nat: str, at: int = 2) -> dict[str, list[Fact]]:
    """A stranger answers at w2's MASTER_PORT; the host of this number has these rules in its table nat."""
    detail = [{"target": 1, "port": 0, "detail": "SSH-2.0-OpenSSH_9.2"}]
    rows = [["-soo", "o-oo", "os-o", "oso-"], ["-ooo", "o-oo", "oo-o", "ooo-"]]
    facts = answers(rows, details={0: detail})
    for number, (host, known) in enumerate(facts.items(), start=1):
        addresses = HostAddresses(interfaces=(InterfaceAddress("eth0", f"10.1.0.{number}", 24),))
        found = rules(saved(*rules_of_nat, table="nat") if number == at else brought(), f"10.1.0.{number}")
        facts[host] = [*known, addresses, found]
    return facts


REDIRECT = "-A PREROUTING -p tcp -m tcp --dport 29500 -j REDIRECT --to-ports 22"


def test_the_rule_that_redirects_is_named_with_the_command_that_deletes_it() -> None:
    outcome = run_check(NAME, behind_rules(REDIRECT))
    ((hosts, text),) = messages(outcome)
    assert hosts == "w2"
    assert f"{REDIRECT} on w2 redirects them" in text
    todo = advice(NAME, outcome)
    assert (
        "As root on w2: `iptables-legacy -t nat -D PREROUTING -p tcp -m tcp --dport 29500 -j REDIRECT --to-ports 22`"
        in todo
    )
    assert "ip neighbour" not in todo


def test_the_rule_of_the_host_that_opens_connections_is_named_there() -> None:
    rule = "-A OUTPUT -d 10.1.0.2/32 -p tcp -m tcp --dport 29500 -j DNAT --to-destination 10.1.0.2:22"
    ((hosts, text),) = messages(run_check(NAME, behind_rules(rule, at=1)))
    assert (hosts, "on w1 redirects them" in text) == ("w1", True)


@pytest.mark.parametrize(
    "rule",
    [
        "-A PREROUTING -p tcp -m tcp --dport 8080 -j REDIRECT --to-ports 22",
        "-A PREROUTING -d 10.96.0.10/32 -p tcp -m tcp --dport 29500 -j DNAT --to-destination 10.244.0.3:53",
        "-A PREROUTING -s 10.9.0.0/16 -p tcp -m tcp --dport 29500 -j REDIRECT --to-ports 22",
        "-A PREROUTING -i docker0 -p tcp -m tcp --dport 29500 -j REDIRECT --to-ports 22",
    ],
    ids=["port", "service", "others", "interface"],
)
def test_a_rule_about_other_connections_is_not_named(rule: str) -> None:
    outcome = run_check(NAME, behind_rules(rule))
    ((hosts, text),) = messages(outcome)
    assert (hosts, "redirects" in text) == ("w2", False)
    assert "nft -a list" in advice(NAME, outcome)


def test_a_rule_of_nft_is_deleted_by_its_handle() -> None:
    position = WalkPosition(
        RuleTable(
            "nft", "ip", "faults", (Chain("c", (Rule("tcp dport 29500 redirect to :22", '[{"redirect":{}}]', 5),)),)
        ),
        Chain("c"),
        "c",
        "tcp dport 29500 redirect to :22",
    )
    assert delete_command(position) == "nft delete rule ip faults c handle 5"


@pytest.mark.parametrize("comment", ["`reboot`", "x" * 500, "a\tb"])
def test_a_command_of_foreign_words_is_left_out_where_it_is_not_plain(comment: str) -> None:
    rule = Rule(
        f'-A PREROUTING -m comment --comment "{comment}" -j REDIRECT',
        f'-A PREROUTING -m comment --comment "{comment}" -j REDIRECT',
    )
    position = WalkPosition(
        RuleTable("iptables", "ip", "nat", (Chain("PREROUTING", (rule,)),)), Chain("x"), "PREROUTING", rule.text
    )
    assert delete_command(position) == ""

from __future__ import annotations

from tests.checks.broken_off import only, only_finding, trouble
from tests.checks.smoke import ran

NAME = "smoke_network_silent"


def test_only_its_failure_kind_is_a_finding() -> None:
    only(NAME, "network")


def test_a_link_blames_both_of_its_ends() -> None:
    lost = ("w1", "w2"), ("w2", "w1")
    finding, todo = only_finding(
        NAME, ran(4, 4, trouble("network", 0, 1, 2, 3, links=lost, evidence=("w1 to w2: ...",)))
    )
    assert finding.hosts == ("w1", "w2")
    assert "w1 to w2" in str(finding)
    assert "-M do -s 1472" in todo


def test_a_host_that_explains_all_links_is_blamed_alone() -> None:
    lost = ("w1", "w2"), ("w2", "w3"), ("w4", "w2")
    finding, _ = only_finding(NAME, ran(4, 4, trouble("network", 1, links=lost)))
    assert finding.hosts == ("w2",)


def test_without_links_the_ranks_hosts_are_blamed() -> None:
    finding, _ = only_finding(NAME, ran(4, 4, trouble("network", 1, 3)))
    assert finding.hosts == ("w2", "w4")


def test_a_rule_of_the_host_itself_is_deleted_there() -> None:
    text = "w2 does not send what it has for w1: a rule for outgoing packets on w2 refuses it"
    finding, todo = only_finding(NAME, ran(4, 4, trouble("network", 1, text=text)))
    assert finding.hosts == ("w2",)
    assert "On w2, as root: `nft -a list ruleset`" in todo and "`iptables -D OUTPUT <number>`" in todo

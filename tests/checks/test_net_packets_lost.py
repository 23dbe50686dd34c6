from __future__ import annotations

import msgspec
import pytest

from doctor.facts.network import HostAddresses, InterfaceAddress
from doctor.facts.network_test import NetworkAnswer
from tests.checks.run_check import advice, messages, run_check
from tests.checks.test_net_path_slow import HOSTS, measured
from tests.facts.firewall_hosts import brought, rules, saved

NAME = "net-packets-lost"


def test_a_network_that_loses_nothing_has_no_finding() -> None:
    assert messages(run_check(NAME, measured({}))) == []


def test_a_host_whose_packets_are_lost() -> None:
    lost = {pair: 9000 for other in range(HOSTS) if other != 4 for pair in ((4, other), (other, 4))}
    outcome = run_check(NAME, measured({}, lost))
    ((hosts, text),) = messages(outcome)
    assert hosts == "w5"
    assert "packets are lost to and from w5: 4.9 % of the segments were sent again" in text
    assert "ip -s -s link" in advice(NAME, outcome)


def test_a_link_and_a_direction() -> None:
    for pairs, place in (({(1, 5), (5, 1)}, "between w2 and w6"), ({(1, 5)}, "from w2 to w6")):
        ((_, text),) = messages(run_check(NAME, measured({}, dict.fromkeys(pairs, 30_000), times=8)))
        assert f"packets are lost {place}: " in text


def test_losses_below_one_in_a_thousand_accuse_nobody() -> None:
    assert messages(run_check(NAME, measured({}, {(4, target): 90 for target in range(HOSTS) if target != 4}))) == []


def test_losses_are_an_error_where_tcp_sends_a_quarter_of_what_it_does_elsewhere() -> None:
    """Its throughput falls with their square root: 4 times less from 16 times the losses on."""
    elsewhere = {(source, other): 500 for source in range(HOSTS) for other in range(HOSTS) if source != other}
    for ratio, severe in ((9, False), (20, True)):
        lost = {pair: ratio * 500 for pair in elsewhere if 4 in pair}
        (finding,) = run_check(NAME, measured({}, {**elsewhere, **lost})).findings
        assert finding.is_warning is not severe


def test_a_host_of_which_few_ways_were_measured_is_named_before_one_of_its_ways() -> None:
    """A short budget: of the lossy host two pairs were measured, once each; it is unknown, and says where it lies."""
    kept = {(4, 0), (0, 4), (4, 1), (1, 4)}
    facts = measured({}, dict.fromkeys(kept, 65_000), times=1)
    for answers in facts.values():
        (answer,) = answers
        assert isinstance(answer, NetworkAnswer)
        ways = [(answer.host, speed["target"]) for speed in answer.answer["speeds"]]
        speeds = [
            speed for way, speed in zip(ways, answer.answer["speeds"], strict=True) if 4 not in way or way in kept
        ]
        answers[:] = [msgspec.structs.replace(answer, answer={**answer.answer, "speeds": speeds})]
    outcome = run_check(NAME, facts)
    assert messages(outcome) == []
    assert "the retransmissions to and from w5: 35 %" in str(outcome.unknown)


RANDOM = "-A INPUT -p tcp -m statistic --mode random --probability 0.05 -j DROP"


@pytest.mark.parametrize(
    ("rule", "at", "is_named"),
    [
        (RANDOM, "w5", True),
        (RANDOM, "w2", False),  # of a host that loses nothing
        ("-A INPUT -p tcp -m tcp --dport 22 -m limit --limit 3/min -j DROP", "w5", False),
        (RANDOM.replace("-m", "-m tcp --dport 30000:65535 -m"), "w5", True),
        (RANDOM.replace("-m", "-m tcp --dport 51234 -m"), "w5", False),
        ("-A INPUT -p icmp -m limit --limit 3/min -j DROP", "w5", False),
        ("-A INPUT -s 10.9.0.0/16 -m limit --limit 3/min -j DROP", "w5", False),
    ],
)
def test_the_rule_that_drops_some_packets_is_named_with_its_command(rule: str, at: str, is_named: bool) -> None:
    lost = {pair: 9000 for other in range(HOSTS) if other != 4 for pair in ((4, other), (other, 4))}
    facts = measured({}, lost)
    for number, (host, answered) in enumerate(facts.items(), start=1):
        addresses = HostAddresses(interfaces=(InterfaceAddress("eth0", f"10.1.0.{number}", 24),))
        facts[host] = [*answered, addresses, rules(saved(rule) if host == at else brought(), f"10.1.0.{number}")]
    outcome = run_check(NAME, facts)
    ((hosts, text),) = messages(outcome)
    assert hosts == "w5"
    assert (f"; {rule} on w5 drops some" in text) is is_named
    assert (f"As root on w5: `iptables-legacy -t filter -D{rule[2:]}` deletes" in advice(NAME, outcome)) is is_named


@pytest.mark.parametrize(("at", "named"), [((2, 6), (2, 6)), ((1, 2, 3, 4, 5, 6), (1, 2, 3, 4))])
def test_the_rules_of_all_hosts_that_drop_are_named_a_few_of_many(at: tuple[int, ...], named: tuple[int, ...]) -> None:
    """A link of two hosts that both drop; a network of which six hosts do."""
    everywhere = {(source, other): 9000 for source in range(HOSTS) for other in range(HOSTS) if source != other}
    lost = {(1, 5): 9000, (5, 1): 9000} if len(at) == 2 else everywhere
    facts = measured({}, lost, times=8)
    for number, (host, answered) in enumerate(facts.items(), start=1):
        addresses = HostAddresses(interfaces=(InterfaceAddress("eth0", f"10.1.0.{number}", 24),))
        facts[host] = [*answered, addresses, rules(saved(RANDOM) if number in at else brought(), f"10.1.0.{number}")]
    outcome = run_check(NAME, facts)
    ((_, text),) = messages(outcome)
    remedy = advice(NAME, outcome)
    for number in range(1, HOSTS + 1):
        assert (f"; {RANDOM} on w{number} drops some" in text) is (number in named)
        assert (f"As root on w{number}: `iptables-legacy" in remedy) is (number in named)
    assert ("drops some; and others" in text) is (named != at)

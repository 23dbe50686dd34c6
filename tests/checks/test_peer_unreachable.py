"""What peer-unreachable finds."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from doctor.engine.fact import Fact
from doctor.engine.result import Outcome, Status
from doctor.facts.hardware_addresses import HardwareAddresses
from doctor.facts.network import HostAddresses, InterfaceAddress
from doctor.facts.peer_connections import PeerConnection, PeerConnections
from doctor.facts.ports import Listeners
from doctor.facts.visit import Reachability
from tests.checks.network import alike_hosts, interfaces
from tests.checks.ports import reserved
from tests.checks.run_check import job, run_check, skipped
from tests.facts.firewall_hosts import brought, rules, saved

DROPPED = saved("-A INPUT -p tcp -m tcp --dport 1024:65535 -j DROP")


def connections(source: int, count: int, failed: dict[int, str], *, is_own: bool = False) -> PeerConnections:
    """Of host w1, w2, ...: everybody tries everybody on two ports."""
    return PeerConnections(
        connections=tuple(
            PeerConnection(f"10.0.0.{peer}", port, failed.get(peer, "refused"), is_own and peer in failed)
            for peer in range(1, count + 1)
            if peer != source
            for port in (40000, 50000)
        )
    )


def hosts(
    failed: dict[int, dict[int, str]],
    count: int = 3,
    *,
    own_kernel: int = 0,
    firewall: int = 0,
) -> dict[str, list[Fact]]:
    """``failed``: by the number of the host that connects, those that it does not reach, and how that ends."""
    facts_by_host = alike_hosts(count)
    for number in range(1, count + 1):
        address = f"10.0.0.{number}"
        facts_by_host[f"w{number}"] += [
            connections(number, count, failed.get(number, {}), is_own=number == own_kernel),
            HostAddresses(
                interfaces=(InterfaceAddress("lo", "127.0.0.1", 8), InterfaceAddress("eth0", address, 24)),
            ),
            rules(DROPPED if number == firewall else brought(), address),
            reserved(""),
            Listeners(sockets=()),
        ]
    return facts_by_host


def look(*args: object, **options: object) -> Outcome:
    return run_check("peer-unreachable", hosts(*args, **options), job())  # type: ignore[arg-type]


RESETS_DROPPED = saved("-A OUTPUT -p tcp -m tcp --tcp-flags RST RST -j DROP")
RESETS_REFUSED = saved("-A INPUT -p tcp -m tcp --tcp-flags RST RST -j DROP")


def blamed(outcome: Outcome) -> dict[str, object]:
    return {finding.hosts[0]: finding.values["peers"] for finding in outcome.findings}


def test_all_answer() -> None:
    assert look({}).status is Status.PASSED


def test_an_address_that_two_hosts_have_accuses_no_third_one() -> None:
    """interface-unreachable and duplicate-address name the two; which of them did not answer is not known."""
    facts = hosts({1: {2: "no answer"}})
    assert run_check("peer-unreachable", facts, job()).findings
    facts["w3"].append(interfaces(eth0="10.0.0.2/24"))
    assert not run_check("peer-unreachable", facts, job()).findings


def test_one_host_alone() -> None:
    assert skipped(run_check("peer-unreachable", {"w1": hosts({})["w1"]})) == {
        "only one host: there is no other to connect to"
    }


def test_the_host_that_nobody_reaches_is_named_once() -> None:
    outcome = look({1: {3: "no answer"}, 2: {3: "no answer"}, 4: {3: "no answer"}}, 4)
    assert blamed(outcome) == {"w3": ["w1", "w2", "w4"]}
    (finding,) = outcome.findings
    assert str(finding) == "no TCP connections between it and 3 of 3 hosts: w1, w2 and w4"
    assert finding.values["observed"] == "no answer, from w1 to 10.0.0.3, port 40000"


def test_of_two_that_fail_only_with_each_other_both_are_named() -> None:
    assert blamed(look({1: {2: "No route to host"}}, 4)) == {"w1": ["w2"], "w2": ["w1"]}


def test_a_host_whose_own_kernel_refuses_is_the_culprit() -> None:
    """w3 has no route to w2; what w2 sends there is answered by nobody."""
    outcome = look({3: {2: "Network is unreachable"}, 2: {3: "no answer"}}, own_kernel=3)
    assert blamed(outcome) == {"w3": ["w2"]}
    assert outcome.findings[0].values["first"] == "w3"


def test_one_port_of_two_counts() -> None:
    facts_by_host = hosts({})
    facts_by_host["w1"][2] = PeerConnections(
        connections=(PeerConnection("10.0.0.2", 40000, "refused"), PeerConnection("10.0.0.2", 50000, "no answer"))
    )
    outcome = run_check("peer-unreachable", facts_by_host, job())
    assert {host for finding in outcome.findings for host in finding.hosts} == {"w1", "w2"}


def test_what_the_own_firewall_stops_is_left_to_its_check() -> None:
    failed = {1: {2: "no answer"}, 3: {2: "no answer"}}
    assert look(failed).findings
    assert look(failed, firewall=2).findings == ()
    assert run_check("firewall-blocks-job", hosts(failed, firewall=2), job()).findings


def test_addresses_that_the_job_does_not_take_do_not_count() -> None:
    """A network for management leads nowhere; Gloo takes the address of the host's name."""
    facts_by_host = hosts({})
    for number in (1, 2, 3):
        facts = facts_by_host[f"w{number}"]
        facts[0] = interfaces(eth0=f"10.0.0.{number}/24", eth1=f"10.5.0.{number}/24")
        source = facts[2]
        assert isinstance(source, PeerConnections)
        silent = [PeerConnection(f"10.5.0.{peer}", 40000, "no answer") for peer in (1, 2, 3) if peer != number]
        facts[2] = PeerConnections(connections=(*source.connections, *silent))
    assert run_check("peer-unreachable", facts_by_host, job()).status is Status.PASSED
    for environ in ({"GLOO_SOCKET_IFNAME": "eth1"}, {"MASTER_ADDR": "10.5.0.1"}):
        assert run_check("peer-unreachable", facts_by_host, job(**environ)).findings
    # TensorPipe's address is that of torch's RPC alone, which a job of collectives does not start.
    for environ in ({"MASTER_ADDR": "10.0.0.1"}, {"TP_SOCKET_IFNAME": "eth1"}):
        assert run_check("peer-unreachable", facts_by_host, job(**environ)).status is Status.PASSED


def test_nothing_tried_is_no_pass() -> None:
    facts_by_host = hosts({})
    for facts in facts_by_host.values():
        facts[2] = PeerConnections(connections=(PeerConnection("10.0.0.9", 40000, "not tried: Too many open files"),))
    assert run_check("peer-unreachable", facts_by_host, job()).status is Status.SKIPPED


@pytest.mark.parametrize("untried", [{2}, {2, 3}], ids=["one", "all"])
def test_what_a_host_could_not_try_is_unknown_and_accuses_no_host(untried: set[int]) -> None:
    no_room = dict.fromkeys(untried, f"not tried: {os.strerror(errno.ENOBUFS)}")
    for others in ({}, {2: dict.fromkeys((1, 3), no_room[2])}):
        outcome = look({1: no_room, **others})
        assert outcome.status is Status.UNKNOWN and blamed(outcome) == {}
        (reason,) = outcome.unknown.values()
        assert "w1 has not tried all connections to other hosts: its kernel's table of neighbours" in str(reason)
    assert set(blamed(look({1: {**no_room, 3: "no answer"}, 2: {3: "no answer"}}))) == {"w3"}


@pytest.mark.parametrize(("whose", "dropped"), [(3, RESETS_DROPPED), (1, RESETS_REFUSED)])
def test_where_a_rule_stops_refusals_no_answer_shows_nothing(whose: int, dropped: str) -> None:
    """A job that listens there is reached: its packets are no resets."""
    facts_by_host = hosts({1: {3: "no answer"}})
    facts_by_host[f"w{whose}"][-3] = rules(dropped, f"10.0.0.{whose}")
    outcome = run_check("peer-unreachable", facts_by_host, job())
    assert blamed(outcome) == {}
    assert outcome.status is Status.UNKNOWN
    (reason,) = outcome.unknown.values()
    assert "no answer from w1 to w3, where a rule of one of them may stop the refusals" in str(reason)


def test_a_rule_that_stops_refusals_excuses_no_other_error() -> None:
    facts_by_host = hosts({1: {3: "No route to host"}, 2: {3: "No route to host"}})
    facts_by_host["w3"][-3] = rules(RESETS_DROPPED, "10.0.0.3")
    assert set(blamed(run_check("peer-unreachable", facts_by_host, job()))) == {"w3"}


def test_the_usual_rules_of_a_firewall_let_refusals_through() -> None:
    """A policy that drops, and all that belongs to known connections accepted: no answer is evidence."""
    known_value = "-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
    usual = saved(known_value, "-A INPUT -s 10.0.0.0/24 -j ACCEPT", policy="DROP")
    facts_by_host = hosts({1: {3: "no answer"}, 2: {3: "no answer"}})
    for number in (1, 2, 3):
        facts_by_host[f"w{number}"][-3] = rules(usual, f"10.0.0.{number}")
    assert set(blamed(run_check("peer-unreachable", facts_by_host, job()))) == {"w3"}


def test_a_prefix_that_leaves_out_the_others_is_named_with_both() -> None:
    facts_by_host = hosts({2: {3: "Network is unreachable"}}, count=4, own_kernel=2)
    facts_by_host["w2"][0] = interfaces(eth0="10.0.0.2/31")
    (finding,) = run_check("peer-unreachable", facts_by_host, job()).findings
    assert finding.values["remedy"].startswith("10.0.0.2 on eth0 has the prefix /31, and /24 on the other hosts.")
    assert (
        "`ip address add 10.0.0.2/24 dev eth0`, then `ip address del 10.0.0.2/31 dev eth0`" in finding.values["remedy"]
    )
    (finding,) = look({2: {3: "Network is unreachable"}}, count=4, own_kernel=2).findings
    assert finding.values["remedy"] == ""


def test_a_route_that_refuses_is_deleted_by_the_command_of_the_remedy() -> None:
    (finding,) = look({2: {3: "No route to host"}}, count=4, own_kernel=2).findings
    assert "As root on w2: `for n in 10.0.0.3; do ip route show table all match " in finding.values["remedy"]


def standing_still(facts_by_host: dict[str, list[Fact]], *names: str) -> dict[str, list[Fact]]:
    """The same facts of hosts of which some did not run for a while."""
    for name in names:
        fact = facts_by_host[name][2]
        assert isinstance(fact, PeerConnections)
        facts_by_host[name][2] = PeerConnections(connections=fact.connections, longest=2.5)
    return facts_by_host


@pytest.mark.parametrize("busy", ["w1", "w3"])
def test_what_has_no_answer_while_one_of_the_two_stood_still_accuses_nobody(busy: str) -> None:
    silence = hosts({1: {3: "no answer"}, 3: {1: "no answer"}})
    outcome = run_check("peer-unreachable", standing_still(silence, busy), job())
    assert not outcome.findings
    assert outcome.status is Status.UNKNOWN


def test_an_error_of_the_kernel_counts_on_a_host_that_stood_still_and_so_does_silence_between_others() -> None:
    no_route = hosts({1: {3: "No route to host"}, 3: {1: "No route to host"}})
    assert run_check("peer-unreachable", standing_still(no_route, "w1", "w2", "w3"), job()).findings
    silence = hosts({1: {2: "no answer"}, 2: {1: "no answer"}}, 4)
    assert run_check("peer-unreachable", standing_still(silence, "w4"), job()).findings


def cut_in(*parts: str) -> dict[int, dict[int, str]]:
    """Each part as the digits of its hosts: no host reaches one of another part."""
    return {
        int(host): {int(peer): "no answer" for other in parts if other != part for peer in other}
        for part in parts
        for host in part
    }


@pytest.mark.parametrize("parts", [("12", "34"), ("123", "456"), ("12", "34", "5"), ("1", "2", "3")])
def test_a_fleet_that_is_cut_is_one_finding_that_accuses_no_host(parts: tuple[str, ...]) -> None:
    count = sum(map(len, parts))
    (finding,) = look(cut_in(*parts), count).findings
    assert list(finding.hosts) == [f"w{number}" for number in range(1, count + 1)]
    assert finding.values["cut_parts"] == [[f"w{number}" for number in part] for part in parts]
    assert str(finding).startswith("TCP connections fail between w")
    assert str(finding).endswith(f"none of them holds more than half of {count} hosts")


def test_beside_a_majority_the_hosts_of_the_other_part_are_named() -> None:
    assert set(blamed(look(cut_in("1234", "56"), 6))) == {"w5", "w6"}


def test_a_host_whose_own_kernel_refuses_is_named_beside_a_cut() -> None:
    failed = cut_in("1234", "567")
    failed[1] = dict.fromkeys(range(2, 8), "Network is unreachable")
    outcome = look(failed, 7, own_kernel=1)
    assert [len(finding.hosts) for finding in outcome.findings] == [1, 6]


def test_a_cut_whose_ends_a_firewall_of_their_own_stops_is_left_to_its_check() -> None:
    assert look(cut_in("1", "2", "3"), firewall=2).findings
    assert (
        look({1: {2: "no answer"}, 3: {2: "no answer"}, 2: {1: "no answer", 3: "no answer"}}, firewall=2).findings == ()
    )


def test_a_hardware_address_of_two_hosts_is_named_where_neither_reaches_the_other() -> None:
    def look_at(failed: dict[int, dict[int, str]], cards: dict[str, str]) -> Outcome:
        facts = hosts(failed, 4)
        for host, card in cards.items():
            facts[host].append(HardwareAddresses(local=(card,), neighbours={}))
        return run_check("peer-unreachable", facts, job())

    apart = {1: {2: "no answer"}, 2: {1: "no answer"}}
    one = {"w1": "02:fc:00:00:00:01", "w2": "02:fc:00:00:00:01", "w3": "02:fc:00:00:00:03", "w4": "02:fc:00:00:00:04"}
    assert {str(finding)[:60] for finding in look_at(apart, one).findings} == {
        "it and w2 have one hardware address, 02:fc:00:00:00:01; no T",
        "it and w1 have one hardware address, 02:fc:00:00:00:01; no T",
    }
    bridges = dict.fromkeys(one, "02:42:00:00:00:01")
    for failed, cards in ((apart, bridges), ({1: {2: "no answer"}}, one), (apart, {**one, "w2": "02:fc:00:00:00:02"})):
        found = look_at(failed, cards).findings
        assert found and not any("hardware" in str(finding) for finding in found)


@pytest.mark.parametrize(
    ("unanswered", "named"),
    [
        ({"w1": ["10.0.0.2", "10.0.0.3", "10.0.0.4"]}, {"w1": ["w2", "w3", "w4"]}),
        ({"w1": ["10.0.0.2"]}, {"w1": ["w2"]}),  # the other one answers all but this host
        ({"w1": ["10.9.9.2", "192.0.2.1"]}, {}),  # at no address that the job takes
        ({"w1": []}, {}),
    ],
)
def test_what_is_reached_only_as_long_as_it_called_before_has_failed(
    unanswered: dict[str, list[str]], named: dict[str, list[str]]
) -> None:
    """As through a VXLAN tunnel without the other hosts: a job starts, or does not, by who calls first."""
    facts = hosts({}, 4)
    for number in range(1, 5):
        asked = tuple(unanswered.get(f"w{number}", ()))
        facts[f"w{number}"].append(HardwareAddresses((f"02:fc:00:00:00:0{number}",), {}, (), asked))
    outcome = run_check("peer-unreachable", facts, job())
    assert blamed(outcome) == named
    assert all("asks all (ARP)" in str(finding) for finding in outcome.findings)


@pytest.mark.parametrize(
    ("altered", "is_found"),
    [
        ({}, True),
        ({"witnesses": "w3"}, False),  # one alone
        ({"proxies": ("eth0",)}, False),  # it answers for others
        ({"proxies": ("all",)}, False),
        ({"proxies": ("cali77",)}, True),
        ({"behind": ("10.0.0.9", "10.0.0.8")}, False),  # a router has the addresses of many
        ({"behind": ("10.0.0.1",)}, False),  # nobody finds the host itself there
        ({"own": "10.0.0.9"}, False),  # it has the address itself: duplicate-address names it
    ],
)
def test_a_host_that_ssh_did_not_reach_is_found_at_the_card_of_another_one(
    altered: dict[str, Any], is_found: bool
) -> None:
    now: dict[str, Any] = {"witnesses": "w3 w4", "proxies": (), "behind": ("10.0.0.1", "10.0.0.9"), **altered}
    facts = hosts({}, 4)
    for number, (host, own) in enumerate(facts.items(), 1):
        found = dict.fromkeys(now["behind"], "02:fc:00:00:00:01") if host in now["witnesses"].split() else {}
        proxies = now["proxies"] if host == "w1" else ()
        own += [
            HardwareAddresses((f"02:fc:00:00:00:0{number}",), found, proxies),
            Reachability("", "", "", f"10.0.0.{number}"),
        ]
    if "own" in altered:
        facts["w1"].append(interfaces(eth0="10.0.0.1/24", eth1="10.0.0.9/24"))
    facts["w9"] = [Reachability("dropped", "", "", "10.0.0.9")]
    texts = [str(finding) for finding in run_check("peer-unreachable", facts, job()).findings]
    assert (
        texts
        == ["w1 and w9 have one hardware address, 02:fc:00:00:00:01: w3 and w4 find both there; SSH did not reach w9"]
        * is_found
    )

from collections.abc import Mapping, Sequence

import pytest

from doctor.engine.evaluate import evaluate_check
from doctor.engine.result import Outcome, Status
from doctor.facts.network import HostAddresses, InterfaceAddress
from doctor.facts.visit import Reachability
from tests.checks.run_check import Facts, check, messages


def run_check(reached: Mapping[str, str], own_values: Mapping[str, Sequence[tuple[str, str]]]) -> Outcome:
    """``reached``: by which SSH connected to each host; ``own_values``: of those that say, interfaces and addresses."""
    facts = Facts(
        {
            host: [
                Reachability("" if host in own_values else "lost", "", "", address),
                *(
                    [
                        HostAddresses(
                            tuple(
                                InterfaceAddress(nic, name, 24)
                                for nic, name in (("lo", "127.0.0.1"), *own_values[host])
                            )
                        )
                    ]
                    if host in own_values
                    else []
                ),
            ]
            for host, address in reached.items()
        }
    )
    return evaluate_check(check("duplicate-address"), tuple(reached), facts, {})


A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"


def test_hosts_with_an_address_each_have_no_finding() -> None:
    docker = ("docker0", "172.17.0.1")
    assert messages(run_check({"a": A, "b": B}, {"a": [("eth0", A), docker], "b": [("eth0", B), docker]})) == []


def test_both_hosts_are_named() -> None:
    outcome = run_check(
        {"a": A, "b": B, "c": C}, {"a": [("eth0", A)], "b": [("eth0", B), ("eth1", C)], "c": [("eth0", C)]}
    )
    assert messages(outcome) == [("c b", "b has the address of c, 10.0.0.3, on eth1")]


def test_a_host_that_another_one_answers_for_is_named_although_its_collector_did_not_run() -> None:
    outcome = run_check({"a": "fd77::1", "b": "fd77::2"}, {"a": [("eth0", "fd77::1"), ("eth0", "FD77:0::2")]})
    assert messages(outcome) == [("b a", "a has the address of b, fd77::2, on eth0")]


def test_where_ssh_meets_one_host_for_both_it_is_one_finding() -> None:
    """What the one is said to list is the other's list."""
    both = [("eth0", A), ("eth0", B)]
    outcome = run_check({"a": A, "b": B}, {"a": both, "b": both})
    assert messages(outcome) == [("a b", "SSH meets one host for both: a and b list 10.0.0.1 and 10.0.0.2")]


@pytest.mark.parametrize(
    "reached",
    [
        {"a": A, "b": A},  # two ports of one machine
        {"a": "127.0.0.1", "b": "127.0.0.1"},
        {"a": A, "b": ""},  # behind a jump host, or this host itself
        {"a": "", "b": ""},
    ],
)
def test_what_may_be_one_machine_is_not_compared(reached: dict[str, str]) -> None:
    assert messages(run_check(reached, {"a": [("eth0", A)], "b": [("eth0", A)]})) == []


VIP = "10.0.0.9"


@pytest.mark.parametrize(
    ("own", "other"),
    [
        ([("eth0", A)], [("eth0", B), ("kube-ipvs0", A)]),
        ([("eth0", C), ("eth0", A)], [("eth0", B), ("lo", A)]),  # a director of a virtual server, by its second address
        ([("eth0", C), ("lo", A)], [("eth0", B), ("lo", A)]),  # a service that each host announces
        ([("lo", A)], [("lo", A), ("eth0", B)]),
    ],
)
def test_addresses_of_services_may_be_on_each_host(own: list[tuple[str, str]], other: list[tuple[str, str]]) -> None:
    assert messages(run_check({"a": A, "b": B}, {"a": own, "b": other})) == []


def test_a_hosts_own_address_on_the_loopback_of_another_host() -> None:
    outcome = run_check({"a": A, "b": B}, {"a": [("eth0", "fe80::1"), ("eth0", A)], "b": [("eth0", B), ("lo", A)]})
    assert messages(outcome) == [
        ("a b", "b has the address of a, 10.0.0.1, on lo: what it sends to a comes back to itself")
    ]
    assert outcome.findings[0].values["look"] == "", "no other host sees an address on lo"
    outcome = run_check({"a": A, "b": B}, {"a": [("eth0", A)], "b": [("eth0", B), ("eth1", A)]})
    assert outcome.findings[0].values["look"].startswith("`arping -c 3 -I eth1 10.0.0.1` on a third host")


def test_a_service_that_two_hosts_have_beside_their_own_is_none() -> None:
    both = {"a": [("eth0", A), ("lo", VIP)], "b": [("eth0", B), ("lo", VIP)]}
    assert messages(run_check({"a": A, "b": B}, both)) == []


def test_one_host_has_nothing_to_compare() -> None:
    assert run_check({"a": A}, {"a": [("eth0", A)]}).status is Status.SKIPPED

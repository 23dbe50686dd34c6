from collections.abc import Mapping, Sequence

import pytest

from doctor.engine.evaluate import evaluate_check
from doctor.engine.fact import Fact
from doctor.engine.result import Outcome, Status
from doctor.facts.hardware_addresses import HardwareAddresses
from doctor.facts.names import HostNames, NameResolution
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


def test_a_service_that_two_hosts_have_beside_their_own_is_none() -> None:
    both = {"a": [("eth0", A), ("lo", VIP)], "b": [("eth0", B), ("lo", VIP)]}
    assert messages(run_check({"a": A, "b": B}, both)) == []


def test_one_host_has_nothing_to_compare() -> None:
    assert run_check({"a": A}, {"a": [("eth0", A)]}).status is Status.SKIPPED


M, N = "02:fc:00:00:00:0a", "02:fc:00:00:00:0b"


W = "10.0.0.8"


def answered(failure: str, found: dict[str, str], local: dict[str, str], meant: str = C) -> list[tuple[str, str]]:
    """``failure``: of c. ``found``: at which card each host finds the address that its resolver has for c."""
    names = HostNames("a", {"c": NameResolution(addresses=(meant,))}, 3)
    facts = Facts(
        {
            "c": [Reachability(failure, "", "", "")],
            **{
                host: [
                    Reachability("", "", "", address),
                    HostAddresses((InterfaceAddress("eth0", address, 24),)),
                    names,
                    HardwareAddresses(local=(local[host],), neighbours={C: found[host]} if host in found else {}),
                ]
                for host, address in (("a", A), ("b", B), ("w", W))
            },
        }
    )
    return messages(evaluate_check(check("duplicate-address"), ("a", "b", "c", "w"), facts, {}))


def test_the_card_that_answers_for_a_host_that_is_not_reached_is_named() -> None:
    local, found = {"a": N, "b": M, "w": "02:fc:00:00:00:08"}, {"a": M, "w": M}
    says = f"c is not reached, and the card {M} of b answers for its address {C}"
    assert answered("dropped", found, local) == [("c b", says)]
    for failure, cards, own, meant in (
        ("auth", found, local, C),
        ("dropped", {"a": M}, local, C),  # one host's word
        ("dropped", {"a": M, "b": M}, local, C),
        ("dropped", {"a": M, "w": "02:fc:00:00:00:0c"}, local, C),
        ("dropped", dict.fromkeys(found, "02:fc:00:00:00:0c"), local, C),
        ("dropped", found, {**local, "a": M}, C),
        ("dropped", found, local, "10.0.0.9"),
    ):
        assert answered(failure, cards, own, meant) == []


def test_one_card_that_answers_for_two_hosts_that_are_not_reached() -> None:
    d, other = "10.0.0.4", "02:fc:00:00:00:02"
    names = HostNames("a", {"c": NameResolution(addresses=(C,)), "d": NameResolution(addresses=(d,))}, 4)

    def look(*neighbours: dict[str, str]) -> list[tuple[str, str]]:
        by_host: dict[str, list[Fact]] = {
            "c": [Reachability("dropped", "", "", "")],
            "d": [Reachability("silent", "", "", "")],
        }
        for (host, address), seen in zip((("a", A), ("w", W)), neighbours, strict=False):
            by_host[host] = [
                Reachability("", "", "", address),
                HostAddresses((InterfaceAddress("eth0", address, 24),)),
                names,
                HardwareAddresses(local=(f"{N}{address[-1]}",), neighbours=seen),
            ]
        return messages(evaluate_check(check("duplicate-address"), tuple(sorted(by_host)), Facts(by_host), {}))

    both = f"neither c nor d is reached, and one card, {M}, answers for both, {C}, {d}"
    sees = {B: other, C: M, d: M}
    assert look(sees, sees) == [("c d", both)]
    for rows in ((sees,), ({B: M, C: M, d: M},) * 2, ({C: M, d: M},) * 2, ({B: other, C: M},) * 2, (sees, {C: other})):
        assert look(*rows) == []

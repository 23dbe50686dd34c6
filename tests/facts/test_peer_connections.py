"""Which hosts connect to which addresses in the second round, and what their attempts come to."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from hypothesis import given

from doctor.engine.fact import Fact, PerHost
from doctor.facts.interfaces import Interfaces
from doctor.facts.names import HostNames
from doctor.facts.peer_connections import (
    EVERY_PAIR,
    PeerConnection,
    PeerConnections,
    connection_partners,
    open_connections,
    sample_ports,
    target_addresses,
)
from doctor.facts.ports import ReservedPorts
from doctor.facts.visit import Reachability
from doctor.job import PortRange
from tests.checks.network import interfaces, link, named
from tests.checks.ports import reserved
from tests.facts.answers import answered
from tests.facts.garbage import JSON, as_answer, runs_on_python_3_6, value_of

SOURCE_INTERFACES = interfaces(eth0="10.0.0.1/24")


def test_the_answer_is_read() -> None:
    fact = answered(PeerConnections, [["10.0.0.2", 40000, "refused"], ["10.0.0.3", 40001, "Network is down", True]])
    assert fact.connections == (
        PeerConnection("10.0.0.2", 40000, "refused"),
        PeerConnection("10.0.0.3", 40001, "Network is down", True),
    )
    assert [connection.answered for connection in fact.connections] == [True, False]


def test_a_host_that_stood_still_is_busy_and_an_older_answer_says_nothing_of_it() -> None:
    rows = [["10.0.0.2", 40000, "no answer"]]
    assert answered(PeerConnections, {"connections": rows, "longest": 1.7}).is_busy
    assert not answered(PeerConnections, {"connections": rows, "longest": 0.4}).is_busy
    assert not answered(PeerConnections, rows).is_busy


@given(JSON)
def test_an_answer_that_makes_no_sense_is_unreadable(value: Any) -> None:
    value_of(PeerConnections, as_answer(value))


def test_the_function_runs_on_old_python() -> None:
    assert runs_on_python_3_6(open_connections)


def test_connected_refused_and_not_tried() -> None:
    with socket.socket() as server, socket.socket() as closed:
        server.bind(("127.0.0.1", 0))
        server.listen()
        closed.bind(("127.0.0.1", 0))
        targets = [["127.0.0.1", server.getsockname()[1]], ["127.0.0.1", closed.getsockname()[1]], ["10.0.0.999", 1]]
        done = open_connections({"asked": "PeerConnections", "PeerConnections": {"targets": targets, "seconds": 5}})
    ends = {(address, port): end for address, port, end, *_ in done["connections"]}
    assert ends[tuple(targets[0])] == "connected"
    assert ends[tuple(targets[1])] == "refused"
    assert PeerConnection("10.0.0.999", 1, ends["10.0.0.999", 1]).answered is None


def test_each_pair_of_a_small_fleet_and_few_of_a_large_one() -> None:
    small = connection_partners([f"h{number}" for number in range(EVERY_PAIR)])
    assert {len(peers) for peers in small.values()} == {EVERY_PAIR - 1}
    large = connection_partners([f"h{number}" for number in range(1000)])
    assert {len(set(peers)) for peers in large.values()} == {9}
    assert sum("h7" in peers for peers in large.values()) == 9
    assert connection_partners(["a"]) == {"a": []}


@pytest.mark.parametrize(
    ("peer", "known_names", "targets"),
    [
        (interfaces(eth0="10.0.0.2/24"), [], ["10.0.0.2"]),
        (interfaces(eth0="10.0.0.2/24 fd00::2/64"), [], ["10.0.0.2"]),
        (interfaces(eth0="10.9.0.2/24"), [], []),
        (interfaces(eth0="10.9.0.2/24"), ["10.9.0.2"], ["10.9.0.2"]),
        (interfaces(eth0="10.0.0.1/24"), [], []),  # the own address: it would lead nowhere else
        (interfaces(docker0="10.0.0.2/24"), [], []),
        (interfaces(link("eth0", running=False), eth0="10.0.0.2/24"), [], []),
        (interfaces(eth0="169.254.169.254/32"), [], []),  # nobody else says that the host is there
    ],
)
def test_what_a_host_says_of_itself_sends_no_other_host_elsewhere(
    peer: Interfaces, known_names: list[str], targets: list[str]
) -> None:
    assert target_addresses(SOURCE_INTERFACES, peer, known_names) == targets


def test_the_plan_takes_what_ssh_and_the_own_resolver_know() -> None:
    facts: dict[type[Fact], PerHost[Any]] = {
        Interfaces: PerHost({f"w{n}": interfaces(eth0=f"10.{n}.0.1/24") for n in (1, 2, 3)}),
        ReservedPorts: PerHost({f"w{n}": reserved("", 40000, 40001) for n in (1, 2, 3)}),
        HostNames: PerHost({"w1": named("w1", "10.1.0.1", w2="10.2.0.1")}),
        Reachability: PerHost({"w3": Reachability(failure="", text="", hint="", address="10.3.0.1")}),
    }
    plan = PeerConnections.plan(facts)
    assert {host: {address for address, _ in task["targets"]} for host, task in plan.items()} == {
        "w1": {"10.2.0.1", "10.3.0.1"},
        "w2": {"10.3.0.1"},
    }


@pytest.mark.parametrize("ends", [(32768, 60999), (50000, 50001), (50000, 50000)])
def test_ports_are_of_the_range(ends: tuple[int, int]) -> None:
    results = list(sample_ports(PortRange(*ends), "a b"))
    assert results == sorted(set(results))
    assert all(ends[0] <= port <= ends[1] for port in results)
    assert len(results) == min(2, ends[1] - ends[0] + 1)

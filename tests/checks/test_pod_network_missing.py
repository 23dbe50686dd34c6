"""What pod-network-missing finds."""

from __future__ import annotations

import json

import pytest

from doctor.facts.network import HostAddresses, InterfaceAddress
from doctor.facts.pod_networks import PodNetwork, PodNetworks
from tests.checks.containers import container, place
from tests.checks.run_check import messages, run_check, skipped

NAME = "pod-network-missing"
ADDRESSES = HostAddresses(
    (
        InterfaceAddress("lo", "127.0.0.1", 8),
        InterfaceAddress("eth0", "10.0.0.2", 24),
        InterfaceAddress("net1", "fd00::5", 64),
    )
)
ETH0 = PodNetwork(name="pods", interface="eth0", ips=("10.0.0.2",), default=True)
NET1 = PodNetwork(name="team/rdma-a", interface="net1", ips=("fd00:0::5",))


def found(*networks: PodNetwork, requested: tuple[str, ...] = ("rdma-a",), links: str = "eth0 lo net1") -> list[str]:
    fact = PodNetworks(requested=requested, attached=networks, links=tuple(links.split()))
    pod = container(engine="kubernetes")
    return [text for _, text in messages(run_check(NAME, {"w-0": [fact, ADDRESSES, pod]}))]


def test_a_pod_with_all_that_it_requests() -> None:
    assert found(ETH0, NET1) == []


def test_a_network_that_nothing_has_attached() -> None:
    """Multus does not run on the node: the pod starts with the cluster's own network."""
    assert found(requested=("rdma-a", "rdma-b")) == [
        "the pod requests the network rdma-a, and it was not attached",
        "the pod requests the network rdma-b, and it was not attached",
    ]
    assert found(ETH0) == ["the pod requests the network rdma-a, and it was not attached"]


def test_an_interface_that_is_gone() -> None:
    assert found(ETH0, NET1, links="eth0 lo") == [
        "the network team/rdma-a was attached as net1, and there is no such interface"
    ]


def test_an_address_that_is_gone() -> None:
    moved = PodNetwork(name="team/rdma-a", interface="net1", ips=("fd00::5", "fd00::6"))
    assert found(ETH0, moved) == ["net1, of the network team/rdma-a, lacks its address fd00::6"]


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "team/rdma-a"},
        {
            "name": "team/rdma-a",
            "interface": "net1",
            "device-info": {"type": "pci", "pci": {"pci-address": "0000:18:02.5"}},
        },
    ],
    ids=["without an interface", "a device that a program drives by itself"],
)
def test_what_may_be_no_interface_is_not_judged(entry: dict[str, object]) -> None:
    import msgspec

    network = msgspec.json.decode(json.dumps(entry), type=PodNetwork)
    assert found(ETH0, network, links="eth0 lo") == []


def test_a_host_that_is_no_pod_is_skipped() -> None:
    assert skipped(run_check(NAME, {"n1": [ADDRESSES, place()]}))


def test_a_pod_with_the_network_of_its_node_gets_no_networks_of_its_own() -> None:
    fact = PodNetworks(requested=("rdma-a",), attached=(), links=("eth0", "lo"))
    pod = container(engine="kubernetes", network_cards=1)
    gone = PodNetworks(requested=(), attached=(ETH0, NET1), links=("eth0", "lo"))  # a card is another network's
    assert len(messages(run_check(NAME, {"w-0": [gone, ADDRESSES, pod]}))) == 1
    assert skipped(run_check(NAME, {"w-0": [fact, ADDRESSES, pod]})) == {
        "the job's container has the network of its host"
    }

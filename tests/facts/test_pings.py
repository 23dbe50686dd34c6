"""The second round: which NPUs ping which, and what their answers come to."""

from __future__ import annotations

import json
from ipaddress import ip_interface

import pytest

from doctor.engine.evaluate import read_fact
from doctor.engine.fact import Fact, Output, PerHost, Visit
from doctor.engine.record import HostRecord
from doctor.facts.hccn.device_addresses import DeviceAddresses
from doctor.facts.hccn.pings import DevicePings, Ping, ping_partners

GOOD = "device 3 PING 29.1.0.2\nrecv seq=0,time=1.4ms\n3 packets transmitted, 3 received, 0.00% packet loss\n"
PARTIAL = "recv time out seq=0\n3 packets transmitted, 2 received, 33.33% packet loss\nCommand execute failed!\n"


def pinged(*rows: tuple[int, str, str]) -> Fact | Exception:
    output = Output(out=json.dumps([list(row) for row in rows]))
    return read_fact(HostRecord(Visit(), {"DevicePings": {"": output}}), DevicePings)


def addresses(**by_host: dict[int, str]) -> PerHost[DeviceAddresses]:
    return PerHost(
        {
            host: DeviceAddresses(by_npu={npu: ip_interface(text) for npu, text in own_values.items()})
            for host, own_values in by_host.items()
        }
    )


def test_packets_received_decide() -> None:
    fact = pinged((3, "29.1.0.2", GOOD), (4, "29.1.0.3", PARTIAL))
    assert isinstance(fact, DevicePings)
    assert fact.pings == (Ping(3, "29.1.0.2", 3, 3), Ping(4, "29.1.0.3", 3, 2))


@pytest.mark.parametrize("text", ["hccn_tool is busy, please try again.", "", "no answer in 10 s"])
def test_a_ping_without_a_count_is_unread_not_lost(text: str) -> None:
    fact = pinged((3, "29.1.0.2", text))
    assert isinstance(fact, DevicePings)
    assert fact.pings == ()
    assert list(fact.unread) == ["ping from NPU 3 to 29.1.0.2"]


def test_two_hosts_ping_each_other() -> None:
    assert ping_partners(["a", "b"]) == {"a": ["b"], "b": ["a"]}


def test_a_host_alone_pings_nobody() -> None:
    assert ping_partners(["a"]) == {"a": []}


def test_in_a_large_fleet_each_host_pings_four_and_is_pinged_by_four() -> None:
    plan = ping_partners([f"h{number}" for number in range(64)])
    assert {len(peers) for peers in plan.values()} == {4}
    assert sum("h7" in peers for peers in plan.values()) == 4


def test_npus_ping_their_own_number_where_both_have_an_address() -> None:
    facts = addresses(a={0: "10.0.0.1/16", 1: "10.0.1.1/16"}, b={0: "10.0.0.2/16"}, c={})
    plan = DevicePings.plan({DeviceAddresses: facts})
    assert plan["a"]["calls"] == [(0, "10.0.0.2", ["-ping", "-g", "address"])]
    assert "c" not in plan


def test_no_npu_pings_an_address_of_the_other_family() -> None:
    facts = addresses(a={0: "10.0.0.1/16", 1: "fd00::1/64"}, b={0: "fd00::2/64", 1: "fd00::3/64"})
    plan = DevicePings.plan({DeviceAddresses: facts})
    assert plan["a"]["calls"] == [(1, "fd00::3", ["-ping", "-inet6", "-g", "ipv6_address"])]
    assert plan["b"]["calls"] == [(1, "fd00::1", ["-ping", "-inet6", "-g", "ipv6_address"])]


def test_a_tool_that_knows_no_ping_of_ipv6_is_named_by_what_it_means() -> None:
    fact = pinged((3, "fd00::2", "Get unknown option -inet6!\n\nUsage: hccn_tool [-i %d] -ping -g address %s\n"))
    assert isinstance(fact, DevicePings)
    assert list(fact.unread.values()) == ["this version of hccn_tool does not support the option"]

"""What device-unreachable finds."""

from __future__ import annotations

from ipaddress import ip_interface

from doctor.engine.fact import PerHost
from doctor.facts.hccn.device_addresses import DeviceAddresses
from doctor.facts.hccn.pings import DevicePings, Ping
from tests.checks.devices import of

look = of("device_unreachable")
HOSTS = ("a", "b", "c", "d")
ADDRESSES = PerHost(
    {
        host: DeviceAddresses(by_npu={npu: ip_interface(f"10.0.{npu}.{place + 1}/16") for npu in range(2)})
        for place, host in enumerate(HOSTS)
    }
)


def pings(*lost: str) -> PerHost[DevicePings]:
    """Everybody pings everybody; packets to and from the addresses in ``lost`` do not come through."""
    response = {}
    for place, host in enumerate(HOSTS):
        response[host] = DevicePings(
            pings=tuple(
                Ping(npu, target, 3, 0 if {target, f"10.0.{npu}.{place + 1}"} & set(lost) else 3)
                for npu in range(2)
                for other in range(4)
                if other != place and (target := f"10.0.{npu}.{other + 1}")
            )
        )
    return PerHost(response)


def test_all_packets_came_through() -> None:
    assert look(pings(), ADDRESSES) == []


def test_the_deaf_npu_is_named_once_not_all_that_waited_for_it() -> None:
    (finding,) = look(pings("10.0.1.3"), ADDRESSES)
    assert finding.hosts == ("c",)
    assert str(finding) == "NPU 1 (10.0.1.3) lost packets to or from 3 of 3 peers: a, b and d"


def test_a_single_lost_packet_counts() -> None:
    few = PerHost({"a": DevicePings(pings=(Ping(0, "10.0.0.2", 3, 2),))})
    (finding,) = look(few, ADDRESSES)
    assert (finding.hosts, finding.values["peers"]) == (("a", "b"), ["a"])
    assert finding.values["cut_parts"] == [["a"], ["b"]]


def test_a_plane_that_is_cut_in_two_is_one_finding_and_the_other_plane_none() -> None:
    ends = {f"10.0.1.{place + 1}": place for place in range(4)}
    halves = {
        host: DevicePings(
            pings=tuple(
                Ping(ping.npu, ping.address, 3, 0 if ends.get(ping.address, place) // 2 != place // 2 else 3)
                for ping in pings()[host].pings
            )
        )
        for place, host in enumerate(HOSTS)
    }
    (finding,) = look(PerHost(halves), ADDRESSES)
    assert finding.hosts == HOSTS
    assert str(finding) == ("NPU 1: packets are lost between a,b and c,d; none of them holds more than half of 4 hosts")


def test_a_host_that_pings_from_an_npu_without_an_address_hides_nobody() -> None:
    """Its answers contradict each other, or the address of that NPU could not be read: the others are judged."""
    answers = pings("10.0.0.3")
    liar = DevicePings(pings=(*answers["b"].pings, Ping(9, "10.0.0.1", 3, 0), Ping(9, "10.0.0.4", 3, 0)))
    (finding,) = look(PerHost({**answers, "b": liar}), ADDRESSES)
    assert finding.hosts == ("c",)

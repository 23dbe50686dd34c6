"""What hccs-unreachable finds."""

from __future__ import annotations

from ipaddress import IPv4Interface

from doctor import Finding, PerHost
from doctor.facts.hccn.device_addresses import Vnic, VnicAddresses
from doctor.facts.hccn.pings import HccsPings, Ping
from doctor.facts.hccn.super_pod import SuperPodId
from tests.checks.device_network import HOSTS, run_check

VNICS = PerHost(
    {
        host: VnicAddresses(
            by_npu={npu: Vnic("UP", IPv4Interface(f"192.{server}.{2 + npu % 2}.{199 - npu}/24")) for npu in range(4)}
        )
        for server, host in enumerate(HOSTS)
    }
)


def list_findings(
    lost: tuple[str, int] | None = None,
    planes: tuple[str, ...] = (),
    pods: int = 1,
    more: dict[str, tuple[Ping, ...]] | None = None,
) -> list[Finding]:
    """Every NPU pings its own number on all hosts; packets to and from ``lost`` fail."""
    response = {}
    for host in HOSTS:
        pings = []
        for npu in range(4):
            for other in HOSTS:
                bad = lost is not None and npu == lost[1] and lost[0] in (host, other)
                received = 0 if bad and not planes else 3
                if other != host and HOSTS.index(host) % pods == HOSTS.index(other) % pods:
                    address = str(VNICS[other].by_npu[npu].address.ip)
                    pings.append(Ping(npu, address, 3, received, planes if bad else ()))
        response[host] = HccsPings(pings=(*pings, *(more or {}).get(host, ())))
    placed = PerHost({host: SuperPodId(id=n % pods, server_index=n, size=4) for n, host in enumerate(HOSTS)})
    return run_check("hccs_unreachable", pings=PerHost(response), vnics=VNICS, pods=placed)


def test_all_packets_came_through() -> None:
    assert list_findings() == []
    assert list_findings(pods=2) == []


def test_the_npu_that_all_failures_meet_at_is_named() -> None:
    [finding] = list_findings(("h2", 3))
    assert finding.hosts == ("h2",)
    assert str(finding) == "NPU 3 (192.1.3.196) lost HCCS packets to or from 3 of 3 peers: h1, h3 and h4"


def test_packets_on_the_wrong_plane_are_lost_ones() -> None:
    [finding] = list_findings(("h2", 3), planes=("0x1",))
    assert finding.hosts == ("h2",)


def test_a_host_that_pings_from_an_npu_without_a_port_hides_nobody() -> None:
    lost = (Ping(9, "192.1.2.199", 3, 0, ()), Ping(9, "192.3.2.199", 3, 0, ()))
    [finding] = list_findings(("h2", 3), more={"h1": lost})
    assert finding.hosts == ("h2",)


def test_a_plane_that_is_cut_in_two_is_one_finding() -> None:
    """NPU 2: nothing passes between the first two hosts and the others."""
    response = {
        host: HccsPings(
            pings=tuple(
                Ping(2, str(VNICS[other].by_npu[2].address.ip), 3, 3 * ((place < 2) == (number < 2)), ())
                for number, other in enumerate(HOSTS)
                if other != host
            )
        )
        for place, host in enumerate(HOSTS)
    }
    placed = PerHost({host: SuperPodId(id=0, server_index=number, size=4) for number, host in enumerate(HOSTS)})
    [finding] = run_check("hccs_unreachable", pings=PerHost(response), vnics=VNICS, pods=placed)
    assert finding.hosts == tuple(HOSTS)
    assert finding.values["cut_parts"] == [list(HOSTS[:2]), list(HOSTS[2:])]
    assert str(finding).startswith("NPU 2: HCCS packets are lost between ")

from ipaddress import ip_interface
from typing import Any

import pytest

from doctor import Finding, Skip
from doctor.facts.hccn.device_addresses import DeviceAddresses, HccnConf
from doctor.facts.hccn.super_pod import SuperPodId
from tests.checks.device_network import a1, product, run_check


def list_findings(family: str, *addresses: str, **more: Any) -> list[Finding]:
    device_addresses = DeviceAddresses(by_npu={npu: ip_interface(text) for npu, text in enumerate(addresses)})
    return run_check("device_ip_refused", addresses=device_addresses, product=product(family), **more)


@pytest.mark.parametrize("family", ["A1", "A2", "A3"])
def test_addresses_of_a_plan(family: str) -> None:
    assert list_findings(family, "10.0.0.1/24", "172.16.1.1/24", "192.168.100.1/24") == []


@pytest.mark.parametrize(
    ("family", "address", "segment"),
    [
        ("A1", "192.168.1.7/24", "192.168.1.0/24"),
        ("A1", "192.168.2.7/24", "192.168.2.0/24"),
        ("A2", "192.168.2.7/16", "192.168.2.0/24"),
        ("A3", "192.168.1.7/24", "192.168.1.0/24"),
    ],
)
def test_segments_of_the_virtual_ports(family: str, address: str, segment: str) -> None:
    [finding] = list_findings(family, "10.0.0.1/24", address)
    assert (finding.values["npu"], finding.values["segment"]) == (1, segment)


@pytest.mark.parametrize(("family", "address"), [("A2", "192.168.3.7/24"), ("A3", "192.168.2.7/24")])
def test_segments_that_only_others_close(family: str, address: str) -> None:
    assert list_findings(family, address) == []


def test_a1_in_smp_mode_closes_three_more() -> None:
    assert list_findings("A1", "192.168.3.7/24", "192.168.3.8/24") == [], "one segment is AMP mode"
    assert [finding.values["npu"] for finding in list_findings("A1", "192.168.3.7/24", "10.0.1.1/24")] == [0]
    assert list_findings("A1", *(str(interface) for interface in a1()["h1"].by_npu.values())) == []


def test_a3_inside_a_super_pod() -> None:
    inside, outside = (SuperPodId(id=0, server_index=server, size=384) for server in (9, 255))
    [finding] = list_findings("A3", "192.1.3.199/24", pod=inside)
    assert finding.values["segment"] == "192.0.0.0/8"
    assert list_findings("A3", "192.1.3.199/24", pod=outside) == []
    assert list_findings("A2", "192.1.3.199/24", pod=inside) == []


@pytest.mark.parametrize("address", ["10.0.0.0/24", "10.0.0.255/24"])
def test_addresses_that_no_host_can_have(address: str) -> None:
    [finding] = list_findings("A2", address)
    assert str(finding.values["segment"]) == "10.0.0.0/24"


def test_the_file_is_judged_where_it_says_something_else() -> None:
    conf = HccnConf(by_npu={0: {"address": "192.168.1.5"}, 1: {"address": "10.0.0.2"}, 2: {"address": "nonsense"}})
    [finding] = list_findings("A2", "10.0.0.1/24", "10.0.0.2/24", conf=conf)
    assert (finding.values["npu"], finding.values["what"]) == (0, "address in /etc/hccn.conf")
    assert "s/^address_0=.*/address_0=10.0.0.1/" in finding.values["remedy"]


def test_no_address_at_all() -> None:
    with pytest.raises(Skip):
        list_findings("A2")


def test_the_command_has_the_address_that_the_file_or_the_npu_has_and_none_that_is_refused() -> None:
    def settings(address: str) -> HccnConf:
        return HccnConf(by_npu={0: {"address": address, "netmask": "255.255.0.0"}})

    [live] = list_findings("A2", "192.168.2.7/24", conf=settings("10.0.0.7"))
    assert (live.values["address"], live.values["netmask"]) == ("10.0.0.7", "255.255.0.0")
    [file] = list_findings("A2", "10.0.0.8/24", conf=settings("192.168.2.7"))
    assert (file.values["address"], file.values["netmask"]) == ("10.0.0.8", "255.255.255.0")
    for conf in (None, settings("192.168.1.7"), settings("10.0.0.0"), settings("$(reboot)")):
        first = list_findings("A2", "192.168.2.7/24", conf=conf)[0]
        assert (first.values["address"], first.values["netmask"]) == ("", "")

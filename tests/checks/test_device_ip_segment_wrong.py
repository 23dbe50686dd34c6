from ipaddress import ip_network
from typing import Any

import pytest

from doctor import Finding, PerHost, Skip
from doctor.facts.hccn.device_addresses import DeviceAddresses, DeviceGateways
from tests.checks.device_network import HOSTS, a1, a2, fleet, gateways, moved, per, rails, run_check


def list_findings(addresses: Any, family: str = "A2", **more: Any) -> list[Finding]:
    around = fleet(family, tuple(addresses))
    return run_check("device_ip_segment_wrong", addresses=addresses, **{**around, **more})


@pytest.mark.parametrize(
    ("family", "addresses"),
    [
        ("A1", a1()),
        ("A1", a1(("h1",))),
        ("A1", a2()),
        ("A2", a2()),
        ("A2", rails()),
        ("A2", rails(("h1", "h2"))),
    ],
    ids=["SMP", "SMP, one host", "AMP", "one segment", "a segment a position", "two hosts fibre by fibre"],
)
def test_plans_that_work(family: str, addresses: Any) -> None:
    assert list_findings(addresses, family) == []


def test_a1_npu_in_the_segment_of_another_position() -> None:
    [finding] = list_findings(moved(a1(), {("h2", 5): "10.0.2.50/24"}), "A1")
    assert finding.hosts == ("h2",)
    assert finding.values["npus"] == [5]
    assert (finding.values["observed"], finding.values["expected"]) == (
        ip_network("10.0.2.0/24"),
        ip_network("10.0.1.0/24"),
    )


def test_a1_two_npus_swapped() -> None:
    first, second = list_findings(moved(a1(), {("h2", 0): "10.0.1.3/24", ("h2", 1): "10.0.0.3/24"}), "A1")
    assert [(f.values["npus"], str(f.values["expected"])) for f in (first, second)] == [
        ([0], "10.0.0.0/24"),
        ([1], "10.0.1.0/24"),
    ]


def test_a1_halves_that_do_not_share_are_a_tie() -> None:
    [finding] = list_findings(moved(a1(("h1",)), {("h1", 4): "10.0.9.1/24"}), "A1")
    assert finding.hosts == ("h1",)
    assert finding.values["groups"] == {"10.0.0.0/24": "NPU 0 of h1", "10.0.9.0/24": "NPU 4 of h1"}


def test_a1_positions_that_share_a_segment() -> None:
    changes = {(host, npu): f"10.0.0.{100 + 10 * n + npu}/24" for n, host in enumerate(HOSTS) for npu in (1, 5)}
    [finding] = list_findings(moved(a1(), changes), "A1")
    assert finding.hosts == HOSTS
    assert finding.values["npus"] == [0, 1, 4, 5]


def test_a1_in_amp_mode_with_one_stray() -> None:
    [finding] = list_findings(moved(a2(), {("h3", 2): "10.9.9.9/16"}), "A1")
    assert (finding.hosts, finding.values["npus"]) == (("h3",), [2])


def test_a2_stray() -> None:
    [finding] = list_findings(moved(a2(), {("h4", 7): "29.2.0.7/16"}))
    assert str(finding) == "segment 29.2.0.0/16 on NPU 7; expected 29.1.0.0/16 (no gateway leads there)"
    assert finding.hosts == ("h4",)


def test_a2_stray_among_segments_for_each_position() -> None:
    [finding] = list_findings(moved(rails(), {("h4", 7): "172.16.6.9/24"}))
    assert (finding.hosts, finding.values["npus"], str(finding.values["expected"])) == (("h4",), [7], "172.16.7.0/24")


def test_a2_halves_of_a_fleet_apart_are_one_tie() -> None:
    changes = {(host, npu): f"29.2.{n}.{npu + 1}/16" for n, host in enumerate(HOSTS[:2]) for npu in range(8)}
    [finding] = list_findings(moved(a2(), changes))
    assert finding.hosts == HOSTS


def test_segments_joined_by_gateways() -> None:
    changes = {(host, npu): f"29.2.{n}.{npu + 1}/16" for n, host in enumerate(HOSTS[:2]) for npu in range(8)}
    addresses = moved(a2(), changes)
    assert list_findings(addresses, gateways=gateways(addresses)) == []


def test_a_gateway_that_only_the_stray_has_leads_nowhere() -> None:
    addresses = moved(a2(), {("h4", 7): "29.2.0.7/16"})
    none = DeviceGateways(by_npu={}, unset=tuple(range(8)))
    facts = PerHost({**per(HOSTS, none), "h4": gateways(addresses)["h4"]})
    [finding] = list_findings(addresses, gateways=facts)
    assert finding.hosts == ("h4",)


def test_a_host_whose_gateways_could_not_be_read_is_not_accused() -> None:
    addresses = moved(a2(), {("h4", npu): f"29.2.0.{npu + 1}/16" for npu in range(8)})
    facts = PerHost({host: gateway for host, gateway in gateways(addresses).items() if host != "h4"})
    assert list_findings(addresses, gateways=facts) == []


def test_a_narrower_mask_is_the_other_checks_business() -> None:
    assert list_findings(moved(a2(), {("h4", 7): "29.1.3.17/24"})) == []


def test_one_a2_host_is_not_judged() -> None:
    with pytest.raises(Skip):
        list_findings(moved(a2(("h1",)), {("h1", 7): "29.2.0.7/16"}))


def test_a3_between_super_pods_is_judged_and_inside_one_is_not() -> None:
    addresses = moved(a2(npus=16), {("h4", 7): "29.2.0.7/16"})
    assert len(list_findings(addresses, "A3", **fleet("A3", pods=2))) == 1
    with pytest.raises(Skip):
        list_findings(addresses, "A3")


def test_ipv6_alone_is_not_judged() -> None:
    with pytest.raises(Skip, match="IPv4"):
        list_findings(moved(a2(("h1", "h2"), 1), {("h1", 0): "2001:db8::1/64", ("h2", 0): "2001:db8:1::1/64"}))


def test_nothing_set_is_not_judged() -> None:
    with pytest.raises(Skip):
        list_findings(per(HOSTS, DeviceAddresses(by_npu={}, unset=(0, 1))))

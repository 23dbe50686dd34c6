from ipaddress import ip_address

import pytest

from doctor import Skip
from doctor.facts.hccn.device_addresses import DeviceAddresses
from tests.checks.device_network import HOSTS, a1, a2, moved, per, run_check


def test_addresses_of_their_own() -> None:
    assert run_check("device_ip_conflict", addresses=a2()) == []
    assert run_check("device_ip_conflict", addresses=a1()) == []


def test_two_hosts_with_one_address() -> None:
    [finding] = run_check("device_ip_conflict", addresses=moved(a2(), {("h3", 5): "29.1.0.11/16"}))
    assert finding.hosts == ("h1", "h3")
    assert finding.values["ip"] == ip_address("29.1.0.11")
    assert str(finding) == "29.1.0.11 is the device IP of NPU 1 of h1 and NPU 5 of h3; expected one NPU"


def test_two_npus_of_one_host() -> None:
    [finding] = run_check("device_ip_conflict", addresses=moved(a2(), {("h2", 0): "29.1.1.17/16"}))
    assert finding.hosts == ("h2",)
    assert finding.values["owners"] == ["NPU 7 of h2", "NPU 0 of h2"] or finding.values["owners"] == [
        "NPU 0 of h2",
        "NPU 7 of h2",
    ]


def test_ipv6_in_two_spellings_is_one_address() -> None:
    addresses = moved(a2(), {("h1", 0): "2001:db8::1/64", ("h2", 0): "2001:0db8:0:0::0001/48"})
    [finding] = run_check("device_ip_conflict", addresses=addresses)
    assert finding.hosts == ("h1", "h2")


def test_a_plan_that_was_given_to_two_hosts() -> None:
    addresses = moved(a2(), {("h2", npu): f"29.1.0.{npu + 10}/16" for npu in range(8)})
    findings = run_check("device_ip_conflict", addresses=addresses)
    assert len(findings) == 8
    assert {finding.hosts for finding in findings} == {HOSTS[:2]}


def test_no_address_at_all() -> None:
    with pytest.raises(Skip):
        run_check("device_ip_conflict", addresses=per(HOSTS, DeviceAddresses(by_npu={}, unset=(0, 1))))

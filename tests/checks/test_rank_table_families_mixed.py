"""rank-table-families-mixed."""

from __future__ import annotations

from doctor.engine.result import Status, accused_hosts
from tests.checks.tables import a1, list_messages, run_check

NAME = "rank-table-families-mixed"


def test_the_smaller_part_is_named() -> None:
    value = a1(2)
    value["server_list"][1]["device"][0]["device_ip"] = "2001:db8::1"
    outcome = run_check(NAME, value)
    assert list_messages(outcome) == ["1 of 16 device addresses are IPv6, the others are not: rank 8 (2001:db8::1)"]
    assert outcome.findings[0].hosts == ("172.16.0.11",)


def test_at_a_tie_no_host_is_the_guilty_one() -> None:
    value = a1(2)
    for number, device in enumerate(value["server_list"][1]["device"]):
        device["device_ip"] = f"2001:db8::{number + 1}"
    (finding,) = run_check(NAME, value).findings
    assert finding.hosts == ("172.16.0.10", "172.16.0.11")
    assert accused_hosts(finding, 2) == ()


def test_all_ipv6_is_fine() -> None:
    value = a1(1)
    for number, device in enumerate(value["server_list"][0]["device"]):
        device["device_ip"] = f"2001:db8::{number + 1}"
    assert run_check(NAME, value).status is Status.PASSED


def test_no_address_at_all() -> None:
    value = a1(1)
    for device in value["server_list"][0]["device"]:
        del device["device_ip"]
    assert run_check(NAME, value).status is Status.SKIPPED


def test_devices_with_addresses_of_both_families() -> None:
    value = a1(1)
    devices = value["server_list"][0]["device"]
    for number, device in enumerate(devices):
        device["device_ip"] += f",2001:db8::{number + 1}"
    assert run_check(NAME, value).status is Status.PASSED
    devices[0]["device_ip"] = devices[0]["device_ip"].partition(",")[0]
    assert run_check(NAME, value).status is Status.PASSED

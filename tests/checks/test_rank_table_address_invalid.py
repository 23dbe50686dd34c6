"""rank-table-address-invalid."""

from __future__ import annotations

import pytest

from doctor.engine.result import Status
from tests.checks.tables import Json, a1, a2, a3, list_messages, run_check

NAME = "rank-table-address-invalid"


def without(value: Json) -> Json:
    for server in value["server_list"]:
        for device in server["device"]:
            del device["device_ip"]
    return value


@pytest.mark.parametrize(
    "ip", ["192.168.200.1000", "192.*.*.1", "node1", "0.0.0.0", "127.0.0.1", "10.0.0.1/24", "fe80:"]
)
def test_no_address(ip: str) -> None:
    value = a1(1, 8)
    value["server_list"][0]["device"][3]["device_ip"] = ip
    assert list_messages(run_check(NAME, value, "A1")) == [
        f"device_ip is not a valid address | observed ['{ip} (rank 3)'] | expected an IPv4 or IPv6 address"
    ]


def test_host_ip() -> None:
    value = a2(2)
    value["server_list"][1]["host_ip"] = "172.16.0"
    assert list_messages(run_check(NAME, value, "A2"))[0].startswith("host_ip is not a valid address")


@pytest.mark.parametrize(
    ("value", "product", "status"),
    [
        (a1(1), "A1", Status.FAILED),
        (a1(1), "A2", Status.PASSED),
        (a1(1), "", Status.UNKNOWN),
        (a2(2), "A2", Status.FAILED),
        (a2(2), "", Status.FAILED),
        (a3(1), "A3", Status.PASSED),
        (a3(1), "", Status.PASSED),
        (a3(2), "A3", Status.FAILED),
    ],
)
def test_missing_where_the_product_needs_it(value: Json, product: str, status: Status) -> None:
    assert run_check(NAME, without(value), product).status is status


def test_without_hccs_every_device_needs_one() -> None:
    outcome = run_check(NAME, without(a3(1)), "A3", HCCL_INTER_HCCS_DISABLE="TRUE")
    assert outcome.status is Status.FAILED


def test_a_list_of_addresses_for_all_or_none() -> None:
    value = a2(1, 2)
    value["server_list"][0]["device"][0]["device_ip"] = "10.0.0.1,10.0.0.2"
    assert list_messages(run_check(NAME, value, "A2")) == [
        "the devices have different numbers of addresses | observed [1, 2] | expected the same number for all"
    ]
    value["server_list"][0]["device"][1]["device_ip"] = "10.0.0.3,10.0.0.4"
    assert run_check(NAME, value, "A2").status is Status.PASSED

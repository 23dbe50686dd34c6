"""rank-table-device-repeated."""

from __future__ import annotations

import pytest

from doctor.engine.result import Status
from tests.checks.tables import a1, a2, a3, legacy, list_messages, run_check

NAME = "rank-table-device-repeated"


def test_one_device_for_two_ranks() -> None:
    value = a1(2, 4)
    value["server_list"][1]["device"][3]["device_id"] = "0"
    outcome = run_check(NAME, value)
    assert list_messages(outcome) == ["172.16.0.11 device 0 is given to rank 4 and rank 7"]
    assert outcome.findings[0].hosts == ("172.16.0.11",)


@pytest.mark.parametrize(
    ("device", "product", "status"),
    [
        ("8", "A1", Status.FAILED),
        ("8", "A2", Status.PASSED),
        ("15", "A3", Status.PASSED),
        ("8", "", Status.UNKNOWN),
        ("16", "", Status.FAILED),
        ("7", "", Status.PASSED),
    ],
)
def test_the_highest_number_depends_on_the_product(device: str, product: str, status: Status) -> None:
    value = a2(1, 8)
    value["server_list"][0]["device"][7]["device_id"] = device
    assert run_check(NAME, value, product).status is status


def test_version_1_2_is_never_a1() -> None:
    assert run_check(NAME, a3()).status is Status.PASSED


def test_group_list_has_8_devices_on_any_product() -> None:
    value = legacy(1, 8)
    value["group_list"][0]["instance_list"][0]["devices"][7]["device_id"] = "8"
    assert list_messages(run_check(NAME, value, "A2")) == ["172.16.0.10 has no device 8 | observed 8 | expected 0 to 7"]

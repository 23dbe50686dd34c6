"""rank-table-super-device-repeated."""

from __future__ import annotations

import pytest

from doctor.engine.result import Status
from tests.checks.tables import a2, a3, list_messages, run_check

NAME = "rank-table-super-device-repeated"


@pytest.mark.parametrize("text", ["", "one", "-1", "4294967296", None])
def test_what_cannot_be_used(text: str | None) -> None:
    value = a3(2, 1, 2)
    device = value["server_list"][1]["device"][0]
    if text is None:
        del device["super_device_id"]
    else:
        device["super_device_id"] = text
    (finding,) = list_messages(run_check(NAME, value))
    assert finding.startswith("super_device_id cannot be used | observed [") and "(rank 2)" in finding


def test_twice_in_one_super_pod() -> None:
    value = a3(1, 2, 2)
    devices = [device for server in value["server_list"] for device in server["device"]]
    devices[3]["super_device_id"] = devices[0]["super_device_id"]
    assert list_messages(run_check(NAME, value)) == [
        "super_device_id 37748736 of super pod 0 belongs to rank 0 and rank 3"
    ]


def test_the_same_in_another_super_pod_is_fine() -> None:
    assert run_check(NAME, a3(2, 1, 2)).status is Status.PASSED


def test_server_mode() -> None:
    assert run_check(NAME, a2()).status is Status.SKIPPED
    assert run_check(NAME, {**a2(), "version": "1.2"}).status is Status.SKIPPED

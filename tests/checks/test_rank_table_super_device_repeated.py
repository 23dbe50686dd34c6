"""rank-table-super-device-repeated."""

from __future__ import annotations

import pytest

from doctor.engine.result import Status
from tests.checks.tables import a2, a3, list_messages, run_check, sdid

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
        "rank 0 and rank 3 have the same super_device_id 37748736 in super pod 0"
    ]


def test_by_the_coding_one_of_the_two_is_wrong() -> None:
    table = a3(1, 2, 8)
    devices = [device for server in table["server_list"] for device in server["device"]]
    devices[9]["super_device_id"] = devices[1]["super_device_id"]
    (finding,) = run_check(NAME, table).findings
    assert finding.hosts == ("node_1",)
    assert (
        f'server_list[1].device[1] (rank 9 of node_1), write `"super_device_id": "{sdid(10, 1)}"`'
        in finding.values["edit"]
    )
    assert [finding.values[name] for name in ("owner", "npu", "card", "chip")] == ["node_1", 1, 0, 1]


def test_without_a_coding_both_are_named_and_nothing_is_proposed() -> None:
    table = a3(1, 2, 4)
    for number, device in enumerate(device for server in table["server_list"] for device in server["device"]):
        device["super_device_id"] = str(number % 7)
    (finding,) = run_check(NAME, table).findings
    assert (finding.hosts, finding.values["edit"]) == (("node_0", "node_1"), "")


def test_the_same_in_another_super_pod_is_fine() -> None:
    assert run_check(NAME, a3(2, 1, 2)).status is Status.PASSED


def test_server_mode() -> None:
    assert run_check(NAME, a2()).status is Status.SKIPPED
    assert run_check(NAME, {**a2(), "version": "1.2"}).status is Status.SKIPPED

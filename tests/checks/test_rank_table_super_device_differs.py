"""rank-table-super-device-differs."""

from __future__ import annotations

from doctor.engine.result import Status
from tests.checks.tables import a1, a3, list_messages, run_check, sdid

NAME = "rank-table-super-device-differs"


def test_the_samples_of_the_public_sources() -> None:
    assert (sdid(9, 0), sdid(9, 7)) == (37748736, 38600711)


def test_swapped_devices() -> None:
    value = a3(1, 1, 4)
    first, second = value["server_list"][0]["device"][1:3]
    first["super_device_id"], second["super_device_id"] = second["super_device_id"], first["super_device_id"]
    assert list_messages(run_check(NAME, value)) == [
        f"the super_device_id {sdid(9, 2)} of rank 1 is that of another device | observed device 2 | expected device 1",
        f"the super_device_id {sdid(9, 1)} of rank 2 is that of another device | observed device 1 | expected device 2",
    ]


def test_an_entry_of_another_host() -> None:
    value = a3(1, 2, 2)
    value["server_list"][1]["device"][0]["super_device_id"] = str(sdid(30, 0))
    (finding,) = list_messages(run_check(NAME, value))
    assert finding.startswith("the super_device_ids of node_1 are those of several hosts")


def test_numbers_of_another_coding_are_not_judged() -> None:
    value = a3(1, 2, 4)
    for number, device in enumerate(device for server in value["server_list"] for device in server["device"]):
        device["super_device_id"] = str(number)
    assert run_check(NAME, value).status is Status.SKIPPED


def test_healthy() -> None:
    assert run_check(NAME, a3()).status is Status.PASSED
    assert run_check(NAME, a1()).status is Status.SKIPPED

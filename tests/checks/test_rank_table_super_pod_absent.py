"""rank-table-super-pod-absent."""

from __future__ import annotations

from doctor.engine.result import Status
from tests.checks.tables import a1, a3, list_messages, run_check

NAME = "rank-table-super-pod-absent"


def test_no_list() -> None:
    value = a3()
    del value["super_pod_list"]
    assert list_messages(run_check(NAME, value)) == ["/job/rank_table.json has version 1.2 but no super_pod_list"]


def test_no_ids() -> None:
    value = a3(1, 1, 2)
    for device in value["server_list"][0]["device"]:
        del device["super_device_id"]
    assert list_messages(run_check(NAME, value)) == ["/job/rank_table.json has version 1.2 but no super_device_id"]


def test_healthy() -> None:
    assert run_check(NAME, a3()).status is Status.PASSED
    assert run_check(NAME, a1()).status is Status.SKIPPED

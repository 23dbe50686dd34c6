"""rank-table-ports-wrong."""

from __future__ import annotations

import pytest

from doctor.engine.result import Status
from tests.checks.tables import a2, a3, list_messages, run_check

NAME = "rank-table-ports-wrong"


@pytest.mark.parametrize("port", ["0", "65536", "high", "-1", "9" * 30, ""])
def test_no_port(port: str) -> None:
    value = a2(1)
    value["server_list"][0]["device"][2]["device_port"] = port
    (finding,) = list_messages(run_check(NAME, value))
    assert finding.startswith("the rank table has a device_port that is no port: ") and "(rank 2)" in finding


def test_one_host_port_for_two() -> None:
    value = a2(2)
    value["server_list"][1]["device"][1]["host_port"] = "16666"
    assert list_messages(run_check(NAME, value)) == ["host_port 16666 of node_1 is given to rank 8 and rank 9"]


def test_the_backup_s_own_port() -> None:
    value = a3(1, 1, 2)
    value["server_list"][0]["device"][0]["backup_device_port"] = "16667"
    (finding,) = list_messages(run_check(NAME, value))
    assert "16667 (rank 0), which is the other device's own device_port" in finding


def test_healthy() -> None:
    assert run_check(NAME, a3()).status is Status.PASSED

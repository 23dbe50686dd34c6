"""rank-table-ranks-not-contiguous."""

from __future__ import annotations

from doctor.engine.result import Status
from tests.checks.tables import a1, lab, legacy, list_messages, run_check

NAME = "rank-table-ranks-not-contiguous"


def test_single_host_tables_joined_by_hand() -> None:
    value = a1(2, 2)
    value["server_list"][1]["device"] = [
        {**device, "rank_id": str(number)} for number, device in enumerate(value["server_list"][1]["device"])
    ]
    assert list_messages(run_check(NAME, value)) == [
        "rank 0 appears 2 times: 172.16.0.10 device 0 and 172.16.0.11 device 0",
        "rank 1 appears 2 times: 172.16.0.10 device 1 and 172.16.0.11 device 1",
        "ranks are missing: 2 and 3 | expected 0 to 3, for 4 devices",
    ]


def test_a_gap() -> None:
    value = a1(1, 4)
    value["server_list"][0]["device"][3]["rank_id"] = "4"
    assert list_messages(run_check(NAME, value)) == [
        "ranks beyond the last: 4 | expected 0 to 3, for 4 devices",
        "ranks are missing: 3 | expected 0 to 3, for 4 devices",
    ]


def test_lab() -> None:
    value = lab(1, 2)
    value["group_list"][0]["instance_list"][1]["rank_id"] = "0"
    assert run_check(NAME, value).status is Status.FAILED


def test_what_cannot_be_read_is_no_gap() -> None:
    value = a1(1, 4)
    del value["server_list"][0]["device"][3]["rank_id"]
    outcome = run_check(NAME, value)
    assert (outcome.status, outcome.findings) == (Status.UNKNOWN, ())


def test_healthy() -> None:
    assert run_check(NAME, a1()).status is Status.PASSED
    assert run_check(NAME, legacy()).status is Status.SKIPPED

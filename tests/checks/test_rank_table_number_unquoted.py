"""rank-table-number-unquoted."""

from __future__ import annotations

from doctor.engine.result import Status
from tests.checks.tables import a1, list_messages, run_check

NAME = "rank-table-number-unquoted"


def test_bare_numbers() -> None:
    value = a1(1, 2)
    for number, device in enumerate(value["server_list"][0]["device"]):
        device["rank_id"] = number
    value["version"] = 1.0
    assert list_messages(run_check(NAME, value)) == [
        (
            "rank_id is a bare number: server_list[0].device[0].rank_id and server_list[0].device[1].rank_id"
            ' | observed 0 | expected "0"'
        ),
        'version is a bare number: version | observed 1.0 | expected "1.0"',
    ]


def test_counts_and_ports() -> None:
    value = a1(1, 2)
    value["server_count"] = 1
    value["server_list"][0]["device"][0]["device_port"] = 16666
    assert [text.partition(":")[0] for text in list_messages(run_check(NAME, value))] == [
        "device_port is a bare number",
        "server_count is a bare number",
    ]


def test_the_numbers_are_judged_all_the_same() -> None:
    value = a1(1, 2)
    value["server_list"][0]["device"][1]["rank_id"] = 0
    assert run_check("rank-table-ranks-not-contiguous", value).status is Status.FAILED


def test_healthy() -> None:
    assert run_check(NAME, a1()).status is Status.PASSED

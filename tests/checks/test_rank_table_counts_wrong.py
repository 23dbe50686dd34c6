"""rank-table-counts-wrong."""

from __future__ import annotations

import pytest

from doctor.engine.result import Status
from tests.checks.tables import a1, lab, legacy, list_messages, run_check

NAME = "rank-table-counts-wrong"


def test_server_count() -> None:
    assert list_messages(run_check(NAME, {**a1(2), "server_count": "3"})) == [
        "server_count is 3, and the table lists 2 | observed 3 | expected 2"
    ]


@pytest.mark.parametrize(("field", "right"), [("instance_count", "2"), ("device_count", "16")])
def test_group_list(field: str, right: str) -> None:
    value = legacy(2)
    value["group_list"][0][field] = "7"
    assert list_messages(run_check(NAME, value)) == [
        f"group_list[0].{field} is 7, and the table lists {right} | observed 7 | expected {right}"
    ]


@pytest.mark.parametrize(("field", "right"), [("instance_count", "16"), ("device_num", "16"), ("server_num", "2")])
def test_lab(field: str, right: str) -> None:
    value = lab(2)
    value["group_list"][0][field] = "7"
    assert list_messages(run_check(NAME, value)) == [
        f"group_list[0].{field} is 7, and the table lists {right} | observed 7 | expected {right}"
    ]


def test_lab_wants_even_hosts() -> None:
    (finding,) = list_messages(run_check(NAME, lab(1, 3)))
    assert finding.startswith("3 devices cannot be divided evenly among 1 host")


def test_unreadable_counts_are_unknown() -> None:
    assert run_check(NAME, {**a1(), "server_count": "two"}).status is Status.UNKNOWN


def test_healthy() -> None:
    assert run_check(NAME, lab(2)).status is Status.PASSED

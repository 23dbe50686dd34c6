"""rank-table-path-relative."""

from __future__ import annotations

import pytest

from doctor.engine.result import Status
from tests.checks.tables import a1, list_messages, run_check

NAME = "rank-table-path-relative"


@pytest.mark.parametrize("name", ["RANK_TABLE_FILE", "MINDSPORE_HCCL_CONFIG_PATH"])
def test_relative(name: str) -> None:
    assert list_messages(run_check(NAME, a1(), **{name: "./rank_table.json"})) == [
        f"{name} is relative | observed {name}=./rank_table.json | expected a path that begins with /"
    ]


def test_healthy() -> None:
    assert run_check(NAME, a1(), RANK_TABLE_FILE="/job/rank_table.json").status is Status.PASSED
    assert run_check(NAME, a1()).status is Status.SKIPPED

"""rank-table-world-size-differs."""

from __future__ import annotations

import pytest

from doctor.engine.result import Status
from tests.checks.tables import a1, list_messages, run_check

NAME = "rank-table-world-size-differs"


@pytest.mark.parametrize("name", ["WORLD_SIZE", "RANK_SIZE", "MS_WORKER_NUM"])
def test_another_number(name: str) -> None:
    assert list_messages(run_check(NAME, a1(2), **{name: "8"})) == [
        f"{name} differs from the number of entries in /job/rank_table.json | observed 8 | expected 16"
    ]


def test_healthy() -> None:
    assert run_check(NAME, a1(2), WORLD_SIZE="16").status is Status.PASSED
    assert run_check(NAME, a1(2)).status is Status.SKIPPED

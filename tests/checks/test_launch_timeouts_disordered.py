"""launch-timeouts-disordered."""

from __future__ import annotations

import pytest

from doctor.engine.evaluate import FactCache, evaluate_check
from doctor.engine.result import Outcome, Status
from doctor.job import LaunchConfig
from tests.checks.tables import check, said

NAME = "launch-timeouts-disordered"


def judged(**environ: str) -> Outcome:
    return evaluate_check(check(NAME), (), FactCache({}), {LaunchConfig: LaunchConfig.from_environment(environ)})


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        (
            {"HCCL_CONNECT_TIMEOUT": "3600"},
            "HCCL_CONNECT_TIMEOUT is not below HCCL_EXEC_TIMEOUT | observed 3600 s | expected below 1836 s",
        ),
        (
            {"HCCL_CONNECT_TIMEOUT": "600", "HCCL_EXEC_TIMEOUT": "600"},
            "HCCL_CONNECT_TIMEOUT is not below HCCL_EXEC_TIMEOUT | observed 600 s | expected below 600 s",
        ),
        (
            {"HCCL_EXEC_TIMEOUT": "3600", "HCCL_EVENT_TIMEOUT": "1868"},
            "HCCL_EVENT_TIMEOUT is not above HCCL_EXEC_TIMEOUT | observed 1868 s | expected above 3600 s",
        ),
        (
            {"HCCL_CONNECT_TIMEOUT": "120", "RANK_TABLE_FILE": "/r.json"},
            "HCCL_CONNECT_TIMEOUT is short for a start with a rank table | observed 120 s | expected at least 300 s",
        ),
    ],
)
def test_the_outer_time_is_the_shorter(environ: dict[str, str], words: str) -> None:
    assert said(judged(**environ)) == [words]


def test_healthy() -> None:
    assert (
        judged(HCCL_CONNECT_TIMEOUT="300", HCCL_EXEC_TIMEOUT="1836", HCCL_EVENT_TIMEOUT="1868").status is Status.PASSED
    )
    assert judged(HCCL_CONNECT_TIMEOUT="300", HCCL_EXEC_TIMEOUT="0").status is Status.PASSED
    assert judged().status is Status.SKIPPED

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


TIMES: list[tuple[dict[str, str], str, float | None, str]] = [
    ({"HCCL_EXEC_TIMEOUT": "60"}, "A1", None, "rounded down to 0"),
    ({"HCCL_EXEC_TIMEOUT": "68"}, "A1", None, ""),
    ({"HCCL_EXEC_TIMEOUT": "60"}, "A2", None, ""),
    (
        {"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "60000", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "30"},
        "",
        None,
        "flight recorder",
    ),
    ({"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "60000"}, "", None, ""),
    ({"HCCL_CONNECT_TIMEOUT": "590"}, "A2", 600.0, "time limit ends before HCCL_CONNECT_TIMEOUT"),
    ({"HCCL_CONNECT_TIMEOUT": "300"}, "A2", 600.0, ""),
]


@pytest.mark.parametrize(("environ", "product", "limit", "message"), TIMES)
def test_the_order_of_timeouts(environ: dict[str, str], product: str, limit: float | None, message: str) -> None:
    launch = LaunchConfig.from_environment(environ, product=product, time_limit_s=limit)
    texts = said(evaluate_check(check(NAME), (), FactCache({}), {LaunchConfig: launch}))
    assert bool(texts) == bool(message)
    assert all(message in text for text in texts)

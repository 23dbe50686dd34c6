"""launch-timeouts-disordered."""

from __future__ import annotations

import pytest

from doctor.engine.evaluate import FactCache, evaluate_check
from doctor.engine.result import Outcome, Status
from doctor.job import LaunchConfig
from tests.checks.tables import check, list_messages

NAME = "launch-timeouts-disordered"


def run_check(**environ: str) -> Outcome:
    return evaluate_check(check(NAME), (), FactCache({}), {LaunchConfig: LaunchConfig.from_environment(environ)})


@pytest.mark.parametrize(
    ("environ", "message"),
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
def test_the_outer_time_is_the_shorter(environ: dict[str, str], message: str) -> None:
    assert list_messages(run_check(**environ)) == [message]


def test_healthy() -> None:
    assert (
        run_check(HCCL_CONNECT_TIMEOUT="300", HCCL_EXEC_TIMEOUT="1836", HCCL_EVENT_TIMEOUT="1868").status
        is Status.PASSED
    )
    assert run_check(HCCL_CONNECT_TIMEOUT="300", HCCL_EXEC_TIMEOUT="0").status is Status.PASSED
    assert run_check().status is Status.SKIPPED


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
    texts = list_messages(evaluate_check(check(NAME), (), FactCache({}), {LaunchConfig: launch}))
    assert bool(texts) == bool(message)
    assert all(message in text for text in texts)


RECORDERS: list[tuple[dict[str, str], str]] = [
    ({"TORCH_NCCL_DUMP_ON_TIMEOUT": "1", "TORCH_NCCL_TRACE_BUFFER_SIZE": "0"}, "keeps nothing"),
    ({"TORCH_NCCL_DUMP_ON_TIMEOUT": "1", "TORCH_FR_BUFFER_SIZE": "0"}, "keeps nothing"),
    ({"TORCH_NCCL_DUMP_ON_TIMEOUT": "1", "TORCH_NCCL_ENABLE_MONITORING": "0"}, "no thread writes"),
    ({"TORCH_HCCL_DUMP_ON_TIMEOUT": "1", "TORCH_HCCL_TRACE_BUFFER_SIZE": "2000"}, "no thread writes"),
    ({"TORCH_HCCL_DUMP_ON_TIMEOUT": "1", "TORCH_HCCL_ENABLE_MONITORING": "1"}, "keeps nothing"),
    (
        {f"TORCH_HCCL_{name}": "1" for name in ("DUMP_ON_TIMEOUT", "ENABLE_MONITORING", "TRACE_BUFFER_SIZE")},
        "",
    ),
    ({"TORCH_HCCL_WAIT_TIMEOUT_DUMP_MILSEC": "60000", "TORCH_HCCL_HEARTBEAT_TIMEOUT_SEC": "60"}, "has written"),
    ({"TORCH_NCCL_DUMP_ON_TIMEOUT": "1", "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000"}, ""),
    ({"TORCH_NCCL_DUMP_ON_TIMEOUT": "0", "TORCH_NCCL_TRACE_BUFFER_SIZE": "0"}, ""),
    ({"TORCH_NCCL_DUMP_ON_TIMEOUT": "1"}, ""),
    ({"TORCH_HCCL_WAIT_TIMEOUT_DUMP_MILSEC": "60000"}, ""),
]


@pytest.mark.parametrize(("environ", "message"), RECORDERS)
def test_a_flight_recorder_that_leaves_no_trace(environ: dict[str, str], message: str) -> None:
    texts = list_messages(run_check(**environ))
    assert bool(texts) == bool(message)
    assert all(message in text for text in texts)


@pytest.mark.parametrize(
    ("ranks", "environ", "expected"),
    [
        (3000, {"HCCL_BUFFSIZE": "200"}, "120 s | expected at least 240 s"),
        (5000, {"HCCL_CONNECT_TIMEOUT": "300"}, "300 s | expected at least 600 s"),
        (5000, {"HCCL_CONNECT_TIMEOUT": "600"}, ""),
        (2999, {"HCCL_CONNECT_TIMEOUT": "120"}, ""),
        (5000, {"NCCL_DEBUG": "INFO"}, ""),
    ],
)
def test_many_ranks_need_longer_to_connect(ranks: int, environ: dict[str, str], expected: str) -> None:
    texts = list_messages(run_check(WORLD_SIZE=str(ranks), **environ))
    assert texts == ([f"HCCL_CONNECT_TIMEOUT is short for {ranks} ranks | observed {expected}"] if expected else [])


REMAINING: list[tuple[dict[str, str], float | None, float | None, str]] = [
    ({"HCCL_CONNECT_TIMEOUT": "300"}, None, 320.0, "time limit ends before HCCL_CONNECT_TIMEOUT"),
    ({"HCCL_CONNECT_TIMEOUT": "300"}, 3600.0, 321.0, "longer than what the scheduler leaves"),
    ({"HCCL_CONNECT_TIMEOUT": "300"}, None, 321.0, ""),
    ({}, 3600.0, 1800.0, "longer than what the scheduler leaves"),
    ({}, 1800.0, 3600.0, ""),
    ({}, None, 5.0, ""),
]


@pytest.mark.parametrize(("environ", "limit", "remaining", "message"), REMAINING)
def test_what_the_scheduler_leaves_the_job(
    environ: dict[str, str], limit: float | None, remaining: float | None, message: str
) -> None:
    launch = LaunchConfig.from_environment(environ, time_limit_s=limit, time_left_s=remaining)
    texts = list_messages(evaluate_check(check(NAME), (), FactCache({}), {LaunchConfig: launch}))
    assert bool(texts) == bool(message)
    assert all(message in text for text in texts)

"""launch-group-timeout-disordered."""

from __future__ import annotations

import ast

import pytest

from doctor.engine.result import Status
from doctor.job.training.durations import timedelta_seconds
from tests.checks.launches import judged_program
from tests.checks.tables import list_messages
from tests.lint.programs import torch_ddp

NAME = "launch-group-timeout-disordered"


def program(timeout: str = "timedelta(minutes=40)") -> str:
    return torch_ddp(init=f'dist.init_process_group("hccl", timeout={timeout})')


def test_a_timeout_that_the_job_does_not_live_to_see() -> None:
    assert judged_program(NAME, program(), {"time_limit": 3600}).status is Status.PASSED
    assert list_messages(judged_program(NAME, program(), {"time_limit": 2400})) == [
        (
            "the job ends before the process group's timeout, which train.py:11 sets | observed 2400 s | "
            "expected below 2400 s (run.sh:2)"
        )
    ]


def test_the_order_with_hccl() -> None:
    assert judged_program(NAME, program(), {"HCCL_EXEC_TIMEOUT": 2399}).status is Status.PASSED
    assert judged_program(NAME, program(), {"HCCL_CONNECT_TIMEOUT": 2379}).status is Status.PASSED
    (text,) = list_messages(judged_program(NAME, program(), {"HCCL_CONNECT_TIMEOUT": 2380}))
    assert "ends before HCCL_CONNECT_TIMEOUT" in text and "expected above 2400 s" in text


def test_what_is_not_compared() -> None:
    assert judged_program(NAME, program()).status is Status.SKIPPED
    assert judged_program(NAME, torch_ddp(), {"time_limit": 60}).status is Status.SKIPPED
    assert judged_program(NAME, program("None"), {"time_limit": 60}).status is Status.SKIPPED
    assert judged_program(NAME, program("wait()"), {"time_limit": 60}).status is Status.UNKNOWN


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("timedelta(minutes=2 * 30)", 3600),
        ("datetime.timedelta(1, 30)", 86430),
        ("timedelta(hours=1, seconds=-60)", None),  # a sign is not read
        ("timedelta(seconds=int(os.environ['T']))", None),
        ("timedelta(**options)", None),
        ("1800", 1800),
        ("60 / 0", None),
        ("True", None),
        ("timedelta(days=1e300)", None),
        ("relativedelta(minutes=1)", None),
    ],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert timedelta_seconds(ast.parse(text, mode="eval").body, lambda node: node) == seconds

"""What task-hung-logged finds."""

from __future__ import annotations

import pytest

from tests.checks.gpu_hosts import log
from tests.checks.run_check import messages, run_check


def test_an_empty_log() -> None:
    assert messages(run_check("task-hung-logged", {"w1": [log()]})) == []


@pytest.mark.parametrize(
    ("message", "output"),
    [
        ("INFO: task jfsmount:136986 blocked for more than 120 seconds.", "process 136986 (jfsmount)"),
        ("watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [python3:2254956]", "a locked CPU 18"),
    ],
)
def test_hangs(message: str, output: str) -> None:
    assert messages(run_check("task-hung-logged", {"w1": [log(message, age=300)]})) == [
        ("w1", f"hung tasks that the kernel reported in 24 hours: 1, the last {output} 5 min ago")
    ]

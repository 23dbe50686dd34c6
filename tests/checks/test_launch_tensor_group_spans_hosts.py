"""launch-tensor-group-spans-hosts."""

from __future__ import annotations

from doctor.engine.result import Status
from tests.checks.launches import UNDECIDED, run_check
from tests.checks.tables import list_messages

NAME = "launch-tensor-group-spans-hosts"


def test_a_group_lies_within_a_host() -> None:
    assert run_check(NAME, "megatron", tensor=8).status is Status.PASSED
    assert list_messages(run_check(NAME, "megatron", tensor=16)) == [
        (
            "a group of 16 tensor parallel ranks at run.sh:3 spans hosts | observed --tensor 16 (run.sh:3) | "
            "expected a divisor of 8, from --ranks_per_node 8 (run.sh:2)"
        )
    ]
    assert run_check(NAME, "megatron", tensor=UNDECIDED).status is Status.UNKNOWN


def test_one_host() -> None:
    assert run_check(NAME, "megatron", {"nodes": 1, "ranks_per_node": 16}, tensor=16).status is Status.PASSED
    assert run_check(NAME).status is Status.SKIPPED

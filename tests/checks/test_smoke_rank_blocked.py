from __future__ import annotations

from doctor.engine.texts import filled
from tests.checks.broken_off import only, only_finding, trouble
from tests.checks.smoke import ran

NAME = "smoke_rank_blocked"


def test_only_its_failure_kind_is_a_finding() -> None:
    only(NAME, "blocked", "busy")


def test_where_it_is_and_what_it_sleeps_in() -> None:
    innermost = 'File "train.py", line 7 in save'
    stack = f'Current thread 0x1 (most recent call first):\n  {innermost}\n  File "train.py", line 90 in main'
    state = filled("{0}, sleeping in {1}", filled("outside of collectives for {0} s", "1.20"), "nfs_wait")
    finding, todo = only_finding(
        NAME, ran(4, 2, trouble("blocked", 2, states={2: state}, stacks={2: stack}, limit=1.0), watched=True)
    )
    assert str(finding).startswith(
        "rank 2 keeps the others waiting in all_reduce #7 (128 x float32, group dp4; layout dp4, step 2)"
    )
    assert state in str(finding)
    assert 'File "train.py", line 7 in save' in todo


def test_the_program_of_a_smoke_run_is_not_to_be_corrected() -> None:
    _, todo = only_finding(NAME, ran(4, 2, trouble("blocked", 2, states={2: "asleep"}, limit=1.0)))
    assert "and none of yours" in " ".join(todo.split())


def test_without_a_stack_it_says_so() -> None:
    _, todo = only_finding(NAME, ran(4, 2, trouble("busy", 2), watched=True))
    assert "a place that is not known (no stack)" in todo

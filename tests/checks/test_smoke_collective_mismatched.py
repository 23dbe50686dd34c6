from __future__ import annotations

import pytest

from tests.checks.broken_off import only, only_finding, trouble
from tests.checks.smoke import ran

NAME = "smoke_collective_mismatched"


def test_only_its_failure_kind_is_a_finding() -> None:
    only(NAME, "mismatch")


def test_both_sides_are_shown() -> None:
    sides = {
        0: "all_reduce #7 (128 x float32, group dp4; step 2)",
        2: "all_reduce #7 (17 x float32, group dp4; step 2)",
    }
    finding, todo = only_finding(NAME, ran(4, 2, trouble("mismatch", 2, calls={**sides, 1: sides[0]})))
    assert str(finding) == f"rank 2 called {sides[2]} in step 2 of dp4; ranks 0, 1: {sides[0]}"
    assert finding.hosts == ("w2",)
    assert "Leave it out of the job" in " ".join(todo.split())


def test_a_rank_that_is_a_step_ahead_at_the_same_call_is_said_to_be() -> None:
    call = "all_reduce #57 (20832 x float32, group world; step {})"
    calls = {rank: call.format(2 if rank == 1 else 1) for rank in range(4)}
    finding, todo = only_finding(NAME, ran(4, 1, trouble("mismatch", 1, calls=calls)))
    assert str(finding).startswith(
        "rank 1 is in step 2, and the others are in step 1, at the same call: all_reduce #57"
    )
    assert "without it" not in todo


@pytest.mark.parametrize(
    ("usual", "other"),
    [
        ("all_reduce #7 (128 x float32, group dp4; step 2)", "all_reduce #7 (128 x float16, group dp4; step 2)"),
        ("broadcast #3 (128 x float32, group dp4, root 0; step 0)",
         "broadcast #3 (128 x float32, group dp4, root 1; step 0)"),
        ("all_reduce #7 (128 x float32, group dp4; step 2)", "all_gather #7 (128 x float32, group dp4; step 2)"),
    ],
    ids=["type", "root", "kind"],
)  # fmt: skip
def test_each_property_of_a_call(usual: str, other: str) -> None:
    finding, _ = only_finding(NAME, ran(4, 2, trouble("mismatch", 2, calls={0: usual, 1: usual, 2: other})))
    assert str(finding).startswith(f"rank 2 called {other} in step 2 of dp4; ranks 0, 1: {usual}")


def test_two_ranks_that_differ_are_both_named_and_no_others() -> None:
    sides = {
        0: "all_reduce #7 (128 x float32, group dp2; step 2)",
        1: "all_reduce #7 (17 x float32, group dp2; step 2)",
    }
    run = ran(2, 1, trouble("mismatch", 0, 1, layout="dp2", group="dp2", calls=sides, waiting_ranks=()))
    finding, _ = only_finding(NAME, run)
    expected = f"ranks 0 and 1 called different collectives in step 2 of dp2: rank 0: {sides[0]} and rank 1: {sides[1]}"
    assert str(finding) == expected


def test_two_culprits_of_one_side_are_told_from_the_others() -> None:
    call = "all_reduce #7 (17 x float32, group dp5; step 2)"
    finding, _ = only_finding(NAME, ran(4, 2, trouble("mismatch", 2, 3, calls={2: call, 3: call})))
    assert str(finding) == f"ranks 2 and 3 called {call} in step 2 of dp4; the others did not"

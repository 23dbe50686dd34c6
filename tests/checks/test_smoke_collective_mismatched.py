from __future__ import annotations

from tests.checks.broken_off import one, only, trouble
from tests.checks.smoke import ran

NAME = "smoke_collective_mismatched"


def test_only_its_failure_kind_is_a_finding() -> None:
    only(NAME, "mismatch")


def test_both_sides_are_shown() -> None:
    sides = {
        0: "all_reduce #7 (128 x float32, group dp4; step 2)",
        2: "all_reduce #7 (17 x float32, group dp4; step 2)",
    }
    finding, todo = one(NAME, ran(4, 2, trouble("mismatch", 2, calls={**sides, 1: sides[0]})))
    assert str(finding).startswith(f"rank 2 called {sides[2]} in step 2 of dp4")
    assert finding.hosts == ("w2",)
    assert f"rank 2: {sides[2]}" in todo
    assert f"ranks 0, 1: {sides[0]}" in todo

from __future__ import annotations

from tests.checks.broken_off import only, only_finding, trouble
from tests.checks.smoke import ran

NAME = "smoke_collective_order"


def test_only_its_failure_kind_is_a_finding() -> None:
    only(NAME, "order")


def test_waiting_ranks_and_their_calls_are_named() -> None:
    sides = {0: "all_reduce #9 (4 x float32, group world)", 1: "all_reduce #7 (128 x float32, group tp2)"}
    finding, _ = only_finding(NAME, ran(4, 2, trouble("order", 0, calls=sides)))
    assert finding.hosts == ("w1",)
    assert sides[0] in str(finding) and sides[1] in str(finding)


def test_a_cycle_of_all_ranks_names_no_others() -> None:
    sides = {0: "all_reduce #9 (4 x float32, group world)", 1: "all_reduce #7 (128 x float32, group tp2)"}
    finding, _ = only_finding(NAME, ran(2, 1, trouble("order", 0, 1, calls=sides, waiting_ranks=())))
    assert str(finding).startswith("ranks 0 and 1 wait for each other in a cycle in step 2")

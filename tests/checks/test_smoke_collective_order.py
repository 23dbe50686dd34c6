from __future__ import annotations

from tests.checks.broken_off import one, only, trouble
from tests.checks.smoke import ran

NAME = "smoke_collective_order"


def test_it_fires_for_its_own_kind_of_trouble_alone() -> None:
    only(NAME, "order")


def test_who_waited_where() -> None:
    sides = {0: "all_reduce #9 (4 x float32, group world)", 1: "all_reduce #7 (128 x float32, group tp2)"}
    finding, _ = one(NAME, ran(4, 2, trouble("order", 0, calls=sides)))
    assert finding.hosts == ("w1",)
    assert sides[0] in str(finding) and sides[1] in str(finding)

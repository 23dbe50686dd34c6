from __future__ import annotations

from tests.checks.broken_off import one, only, trouble
from tests.checks.smoke import ran

NAME = "smoke_rank_left"


def test_it_fires_for_its_own_kind_of_trouble_alone() -> None:
    only(NAME, "left")


def test_who_left_and_who_waited() -> None:
    finding, todo = one(NAME, ran(4, 2, trouble("left", 0, text="is done")))
    assert str(finding) == "rank 0 left in step 2 of dp4 while ranks 1, 2 and 3 waited for it: is done"
    assert finding.hosts == ("w1",)
    assert "drop_last" in todo

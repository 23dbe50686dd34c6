from __future__ import annotations

import msgspec

from tests.checks.broken_off import only, only_finding, trouble
from tests.checks.smoke import ran

NAME = "smoke_rank_left"


def test_only_its_failure_kind_is_a_finding() -> None:
    only(NAME, "left")


def test_leaving_and_waiting_ranks_are_named() -> None:
    finding, todo = only_finding(NAME, ran(4, 2, trouble("left", 0, text="is done")))
    assert str(finding) == "rank 0 left in step 2 of dp4 while ranks 1, 2 and 3 waited for it: is done"
    assert finding.hosts == ("w1",)
    assert "same program of doctor" in todo and "drop_last" not in todo, "the user's program did not run"
    watched = msgspec.structs.replace(ran(4, 2, trouble("left", 0, text="is done")), watched=True)
    _, todo = only_finding(NAME, watched)
    assert "drop_last" in todo and "SystemExit" in todo


def test_where_nobody_waits_and_several_may_have_left_the_finding_says_one_of_them() -> None:
    finding, _ = only_finding(
        NAME, ran(4, 2, trouble("left", 0, 1, 2, 3, waiting_ranks=(), text="rank 3 was sent other data"))
    )
    assert str(finding) == "one of ranks 0, 1, 2 and 3 left in step 2 of dp4: rank 3 was sent other data"
    finding, _ = only_finding(NAME, ran(4, 2, trouble("left", 1, waiting_ranks=(), text="is done")))
    assert str(finding) == "rank 1 left in step 2 of dp4: is done"

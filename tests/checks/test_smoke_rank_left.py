from __future__ import annotations

from typing import Any

import msgspec
import pytest

from doctor.engine.result import accused_hosts
from doctor.engine.smoke_summary import FailureKind
from tests.checks.broken_off import only, only_finding, trouble
from tests.checks.smoke import ran

NAME = "smoke_rank_left"
LEFT = "left the loop or ended normally"


def test_only_its_failure_kind_is_a_finding() -> None:
    only(NAME, "left")


def test_leaving_and_waiting_ranks_are_named() -> None:
    finding, todo = only_finding(NAME, ran(4, 2, trouble("left", 0, text=LEFT)))
    assert str(finding) == "rank 0 left in step 2 of dp4 while ranks 1, 2 and 3 waited: left the loop or ended normally"
    assert finding.hosts == ("w1",)
    assert "none of yours" in todo and "drop_last" not in todo, "the user's program did not run"
    watched = msgspec.structs.replace(ran(4, 2, trouble("left", 0, text=LEFT)), watched=True)
    _, todo = only_finding(NAME, watched)
    assert "drop_last" in todo and "SystemExit" in todo


def test_where_nobody_waits_and_several_may_have_left_the_finding_says_one_of_them() -> None:
    finding, _ = only_finding(
        NAME, ran(4, 2, trouble("left", 0, 1, 2, 3, waiting_ranks=(), text="rank 3 was sent other data"))
    )
    assert str(finding) == "one of ranks 0, 1, 2 and 3 left in step 2 of dp4: rank 3 was sent other data"
    finding, _ = only_finding(NAME, ran(4, 2, trouble("left", 1, waiting_ranks=(), text=LEFT)))
    assert str(finding) == "rank 1 left in step 2 of dp4: left the loop or ended normally"


SIDES = {0: "all_reduce of 8 float32", 3: "broadcast of 8 float32"}


@pytest.mark.parametrize(
    ("check", "kind", "culprits", "more", "accused"),
    [
        ("smoke_rank_left", "left", (0, 3), {"waiting_ranks": ()}, ()),
        ("smoke_rank_left", "left", (0, 1), {"waiting_ranks": ()}, ("w1",)),
        ("smoke_rank_left", "left", (0, 3), {}, ("w1", "w2")),
        ("smoke_collective_mismatched", "mismatch", (0, 3), {"calls": SIDES}, ()),
        ("smoke_collective_mismatched", "mismatch", (3,), {"calls": SIDES}, ("w2",)),
        ("smoke_network_silent", "network", (), {"links": (("w1", "w2"),)}, ()),
        ("smoke_rank_died", "dead", (0, 3), {"calls": SIDES, "text": "signal 9"}, ("w1", "w2")),
    ],
)
def test_one_of_two_hosts_is_bad_only_where_it_is_known_which(
    check: str, kind: FailureKind, culprits: tuple[int, ...], more: dict[str, Any], accused: tuple[str, ...]
) -> None:
    finding, _ = only_finding(check, ran(4, 2, trouble(kind, *culprits, **more)))
    assert accused_hosts(finding, 2) == accused

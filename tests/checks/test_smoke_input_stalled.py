from __future__ import annotations

from tests.checks.broken_off import only, only_finding, trouble
from tests.checks.smoke import ran

NAME = "smoke_input_stalled"


def test_only_its_failure_kind_is_a_finding() -> None:
    only(NAME, "input")


def test_the_rank_that_waits_for_its_loader() -> None:
    finding, todo = only_finding(
        NAME, ran(4, 2, trouble("input", 1, stage="loader", layout="", states={1: "in input for 1.1 s"}))
    )
    assert str(finding) == "rank 1 waited for input data in the loader stage: in input for 1.1 s"
    assert "df -h /dev/shm" in todo

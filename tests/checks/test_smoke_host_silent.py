from __future__ import annotations

from tests.checks.broken_off import one, only, trouble
from tests.checks.smoke import ran

NAME = "smoke_host_silent"


def test_it_fires_for_its_own_kind_of_trouble_alone() -> None:
    only(NAME, "silent")


def test_the_host_that_says_nothing_any_more() -> None:
    text = "no data from w2 for 1 s"
    finding, todo = one(NAME, ran(4, 2, trouble("silent", 2, 3, text=text)))
    assert finding.hosts == ("w2",)
    assert text in str(finding)
    assert "journalctl" in todo

from __future__ import annotations

from tests.checks.broken_off import only, only_finding, trouble
from tests.checks.smoke import ran

NAME = "smoke_host_silent"


def test_only_its_failure_kind_is_a_finding() -> None:
    only(NAME, "silent")


def test_the_host_that_says_nothing_any_more() -> None:
    text = "no data from w2 for 1 s"
    finding, todo = only_finding(NAME, ran(4, 2, trouble("silent", 2, 3, text=text)))
    assert finding.hosts == ("w2",)
    assert text in str(finding)
    assert "journalctl" in todo

from __future__ import annotations

from tests.checks.broken_off import only, only_finding, trouble
from tests.checks.smoke import ran

NAME = "smoke_budget_spent"


def test_only_its_failure_kind_is_a_finding() -> None:
    only(NAME, "budget")


def test_nobody_is_blamed_alone() -> None:
    run = ran(4, 2, trouble("budget", text="120 s were not enough for the training stage"), ended="budget")
    finding, todo = only_finding(NAME, run)
    assert finding.hosts == ()
    assert "120 s were not enough" in str(finding)
    assert "--budget" in todo

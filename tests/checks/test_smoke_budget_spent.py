from __future__ import annotations

from doctor.engine.texts import filled
from tests.checks.broken_off import only, only_finding, trouble
from tests.checks.smoke import ran

NAME = "smoke_budget_spent"


def test_only_its_failure_kind_is_a_finding() -> None:
    only(NAME, "budget")


def test_nobody_is_blamed_alone() -> None:
    text = filled("{0} had not joined after {1} s in which each could run", "ranks 2 and 3", "60")
    run = ran(4, 2, trouble("budget", text=text), ended="budget")
    finding, todo = only_finding(NAME, run)
    assert finding.hosts == ()
    assert "ranks 2 and 3 had not joined after 60 s" in str(finding)
    assert "--budget" in todo

from __future__ import annotations

from tests.checks.broken_off import only, only_finding, trouble
from tests.checks.smoke import ran

NAME = "smoke_rank_stopped"


def test_only_its_failure_kind_is_a_finding() -> None:
    only(NAME, "stopped", "frozen")


def test_stopped_by_a_signal() -> None:
    finding, todo = only_finding(NAME, ran(4, 2, trouble("stopped", 3, text="stopped by a signal")))
    assert str(finding).startswith("rank 3 is stopped by a signal in step 2 of dp4")
    assert finding.hosts == ("w2",)
    assert "kill -CONT" in todo and finding.values["case"] == ["Signal"]


def test_what_holds_it_chooses_the_remedy() -> None:
    finding, todo = only_finding(NAME, ran(4, 2, trouble("frozen", 3, text="frozen by its cgroup")))
    assert "docker unpause" in todo and finding.values["case"] == ["Frozen"]
    finding, todo = only_finding(NAME, ran(4, 2, trouble("stopped", 3, text="held by a debugger")))
    assert "TracerPid" in todo and finding.values["case"] == ["Debugger"]

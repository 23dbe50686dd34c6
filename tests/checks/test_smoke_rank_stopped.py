from __future__ import annotations

from doctor.smoke.model import RankPause
from tests.checks.broken_off import only, only_finding, trouble
from tests.checks.smoke import findings_of, ran

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


def test_who_went_on_is_a_warning() -> None:
    finding, todo = only_finding(NAME, ran(4, 2, stops={1: RankPause(12.3, "T")}))
    assert str(finding) == "rank 1 was stopped by a signal (state T) for 12 s, and went on"
    assert finding.is_warning and finding.hosts == ("w1",)
    assert "kill -CONT" in todo and finding.values["case"] == ["Signal"]


def test_who_did_not_go_on_is_told_once() -> None:
    stops = {1: RankPause(60.1, "T"), 2: RankPause(3.0, "F")}
    failed, paused = findings_of(NAME, ran(4, 2, trouble("stopped", 1, text="stopped by a signal"), stops=stops))
    assert str(failed).startswith("rank 1 is stopped") and not failed.is_warning
    assert str(paused) == "rank 2 was frozen by its cgroup (state F) for 3 s, and went on"

from __future__ import annotations

from doctor.engine.watch_summary import ResumeDifference, ResumeReport, WatchResult
from tests.checks.watched import run_check

NAME = "resume-state-lost"


def watched(*differences: ResumeDifference) -> WatchResult:
    return WatchResult(hosts={0: "w0", 1: "w1"}, resumed=ResumeReport(6, differences))


def test_nothing_is_lost() -> None:
    assert run_check(NAME, watched()).status.value == "passed"


def test_the_fault() -> None:
    row = ResumeDifference("generators-rank", "error", (1,), {"names": "torch", "other": 0, "step": 6})
    (finding,) = run_check(NAME, watched(row)).findings
    assert str(finding) == "rank 1 begins with the torch generator of rank 0: all of them draw the same numbers"
    assert finding.hosts == ("w1",)


def test_what_is_lost_on_all_ranks_is_of_all_hosts() -> None:
    (finding,) = run_check(NAME, watched(ResumeDifference("moments-new", "warning", (), {"step": 6}))).findings
    assert finding.hosts == ("w0", "w1") and finding.is_warning


def test_what_may_be_meant_is_no_finding_and_an_unknown_kind_says_nothing() -> None:
    rows = (
        ResumeDifference("rate", "note", (), {"now": "1e-4", "before": "1e-3", "step": 6}),
        ResumeDifference("from the future", "error"),
    )
    assert run_check(NAME, watched(*rows)).status.value == "passed"


def test_a_training_of_its_own_is_skipped() -> None:
    assert run_check(NAME, WatchResult()).status.value == "skipped"

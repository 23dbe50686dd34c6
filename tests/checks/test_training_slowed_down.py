from __future__ import annotations

from doctor.engine.watch_summary import PaceComparison, RankPace, RunPace, SlowDown, WatchResult
from tests.checks.watched import run_check

NAME = "training-slowed-down"
NOW = RunPace(40, {0: RankPace(0, "w0"), 1: RankPace(1, "w1")})


def watched(*slow: SlowDown, runs: int = 3) -> WatchResult:
    return WatchResult(hosts={0: "w0", 1: "w1"}, pace=PaceComparison(NOW, runs, slow))


def test_as_before() -> None:
    assert run_check(NAME, watched()).status.value == "passed"


def test_the_fault() -> None:
    (finding,) = run_check(NAME, watched(SlowDown("input", 744.0, 30.0, 3, (1,), ("w1",), 716.0, 2.0))).findings
    assert str(finding) == (
        "a step takes 744 s, and 30 s in 3 earlier runs of this job: rank 1 waits 716 s for its input; before: 2 s"
    )
    assert finding.hosts == ("w1",) and finding.values["ranks"] == [1]


def test_a_network_without_a_host_is_of_all_hosts() -> None:
    (finding,) = run_check(NAME, watched(SlowDown("network", 2.0, 1.0, 3, (), (), 1.5, 0.5))).findings
    assert finding.hosts == ("w0", "w1") and "over the network of the hosts" in str(finding)


def test_without_enough_earlier_runs_it_is_skipped() -> None:
    assert run_check(NAME, watched(runs=0)).status.value == "skipped"
    assert run_check(NAME, WatchResult()).status.value == "skipped"


def test_where_other_programs_kept_the_cpu_it_is_unknown() -> None:
    starved = WatchResult(hosts={0: "w0", 1: "w1"}, pace=PaceComparison(NOW, 3, starved=(1,)))
    assert run_check(NAME, starved).status.value == "unknown"

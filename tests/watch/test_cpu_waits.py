"""What ranks waited for a CPU, without what their own CPU quota kept back."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from doctor.watch import rank_process
from doctor.watch.rank_process import CpuWaits, QuotaWait, RankProcess
from doctor.watch.training import Training


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A control group with half a CPU, which has been held back for 100 s before the look."""
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    write_held(tmp_path, 100.0)
    monkeypatch.setattr(rank_process, "quota_folders", lambda pid: [str(tmp_path)])
    return tmp_path


def write_held(group: Path, seconds: float) -> None:
    (group / "cpu.stat").write_text(f"nr_periods 10\nnr_throttled 9\nthrottled_usec {seconds * 1e6:.0f}\n")


def looked_at(group: Path, held: float, waited: float) -> QuotaWait:
    """Of a rank that had waited for 7 s before it was looked at first."""
    quota = QuotaWait()
    write_held(group, 100.0)
    quota.look(1, 7.0)
    write_held(group, 100.0 + held)
    quota.look(1, 7.0 + waited)
    return quota


@pytest.mark.parametrize(
    ("held", "waited", "share"), [(0.0, 5.0, 0.0), (4.0, 5.0, 0.8), (9.0, 5.0, 1.0), (4.0, 0.0, 0.0)]
)
def test_the_share_of_a_wait_that_the_quota_has_made(group: Path, held: float, waited: float, share: float) -> None:
    quota = looked_at(group, held, waited)
    assert quota.share([quota]) == pytest.approx(share)


def test_a_group_without_a_quota_makes_no_wait(group: Path) -> None:
    """Of one that had a quota until now, the kernel goes on showing its seconds."""
    (group / "cpu.max").write_text("max 100000\n")
    quota = looked_at(group, 4.0, 5.0)
    assert quota.share([quota]) == 0.0


def test_the_ranks_of_a_group_have_its_seconds_together(group: Path) -> None:
    """Eight ranks that wait for other programs are not excused by the few seconds of their group, eight times."""
    ranks = [looked_at(group, 4.0, 5.0) for _ in range(8)]
    assert ranks[0].share(ranks) == pytest.approx(0.1)
    elsewhere = QuotaWait()
    elsewhere.folder, elsewhere.held, elsewhere.waited = "/other", 1.0, 1.0
    assert ranks[0].share([*ranks, elsewhere]) == pytest.approx(0.1)


def test_what_the_quota_of_a_rank_keeps_back_is_its_own_slowness_and_no_other_programs(group: Path) -> None:
    """Its pace is compared as that of any rank; of one beside a busy program it is not."""
    training = Training(2, 10.0, "w0", time.monotonic())
    for rank, quota in enumerate((looked_at(group, 4.5, 5.0), QuotaWait())):
        timed = SimpleNamespace(entries=[], steps=[])
        training.processes[rank] = SimpleNamespace(  # type: ignore[assignment]
            pid=os.getpid(), quota=quota, timed=timed, times=lambda: (0, 0, 0), cpu_wait=0.6, cpu_seconds=12.0,
            snapshot=lambda now, ranks: None,
        )  # fmt: skip
    for rank, process in training.processes.items():
        training.take_own(rank, process, [], time.monotonic())
    assert training.cpu_waits.shares == pytest.approx({0: 0.06, 1: 0.6})
    assert training.cpu_waits.busy_ranks() == [1]


def test_nobody_is_busy_of_whom_nothing_is_known() -> None:
    assert CpuWaits().busy_ranks() == [] and CpuWaits().are_known_in({})


def test_of_helpers_the_longest_wait_counts_and_only_while_the_main_thread_rests(
    group: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight loader workers wait at the same time; what waits beside a main thread that runs makes no step longer."""
    rank = RankProcess.__new__(RankProcess)
    rank.pid, rank.quota, rank._helpers = os.getpid(), QuotaWait(), {}
    rank._others_waited = rank._others_at = rank._own_time = 0.0
    waits = dict.fromkeys(range(8), 5.0)
    monkeypatch.setattr(rank_process, "helper_times", lambda pid, loaders: {n: (0.0, s) for n, s in waits.items()})
    rank._look_at_helpers(100.0, (10.0, 2.0))
    waits.update(dict.fromkeys(range(8), 6.0))
    rank._look_at_helpers(102.0, (10.5, 2.0))
    assert rank._others_waited == pytest.approx(1.0)
    waits[3] = 9.0
    rank._look_at_helpers(105.0, (13.0, 2.0))
    assert rank._others_waited == pytest.approx(1.5)
    assert rank.quota.waited == pytest.approx(8 + 3)

"""What a piece of work took: what another program took of its CPU is left out, what its own quota took is not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from doctor.smoke.programs.worker import work_timing
from doctor.smoke.programs.worker.work_timing import WorkTimer


class Clock:
    """A thread's clocks, in seconds, and the kernel's count of what a quota held back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, quota: bool) -> None:
        self.wall = self.cpu = self.ready = self.throttled = 0.0
        clocks = SimpleNamespace(perf_counter=lambda: self.wall, thread_time=lambda: self.cpu)
        monkeypatch.setattr(work_timing, "time", clocks)
        monkeypatch.setattr(work_timing, "run_queue_seconds", lambda: self.ready)
        monkeypatch.setattr(work_timing, "throttling", lambda folder: (0, 0, self.throttled))
        monkeypatch.setattr(work_timing, "quota_folders", lambda pid: ["/group"])
        monkeypatch.setattr(work_timing, "has_quota", lambda folder: quota)

    def work(self, cpu: float, ready: float = 0.0, throttled: float = 0.0) -> None:
        self.wall, self.cpu, self.ready = self.wall + cpu + ready, self.cpu + cpu, self.ready + ready
        self.throttled += throttled


def test_what_other_programs_took_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, quota=False)
    timer = WorkTimer()
    for ready in (0.0, 0.5, 0.0):
        timer.run(lambda ready=ready: clock.work(0.01, ready))  # type: ignore[misc]
    assert timer.seconds() == pytest.approx([0.01] * 3)
    assert (timer.waited, timer.held) == pytest.approx((0.5, 0.0))


def test_what_its_own_quota_took_is_spread_over_all_pieces_however_late_it_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch, quota=True)
    timer = WorkTimer()
    timer.run(lambda: clock.work(0.01, ready=0.03))
    timer.run(lambda: clock.work(0.01, throttled=0.03))  # the kernel tells of the first piece now
    assert timer.seconds() == pytest.approx([0.025] * 2)
    assert (timer.waited, timer.held) == pytest.approx((0.0, 0.03))


def test_of_a_quota_no_more_counts_than_the_pieces_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, quota=True)
    timer = WorkTimer()
    clock.work(0.01, throttled=9.0)  # before the first piece
    timer.run(lambda: clock.work(0.01, ready=0.01, throttled=0.5))  # of another thread of the group
    assert timer.seconds() == pytest.approx([0.02])
    assert (timer.waited, timer.held) == pytest.approx((0.0, 0.01))


def test_no_piece_takes_less_than_its_cpu_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, quota=False)
    timer = WorkTimer()

    def waits_of_before() -> None:
        clock.work(0.01)
        clock.ready += 0.5

    timer.run(waits_of_before)
    assert timer.seconds() == pytest.approx([0.01])

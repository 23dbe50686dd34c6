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


class Waiting:
    """The clocks of a rank that is stopped for a while after each reading of them; its events."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stops: float, of_stage: float) -> None:
        self.now = self.ran = self.waited = 0.0
        self.stops, self.events = stops, list[dict[str, object]]()
        clocks = SimpleNamespace(monotonic=self.read_clock, thread_time=lambda: self.ran)
        monkeypatch.setattr(work_timing, "time", clocks)
        monkeypatch.setattr(work_timing, "run_queue_seconds", lambda: self.waited)
        context = SimpleNamespace(emit=lambda kind, **fields: self.events.append(fields), hosts=["a", "b"], rank=1)
        spins = work_timing.CpuSpins(context)  # type: ignore[arg-type]
        for _ in range(8):
            self.ran, self.waited = self.ran + 0.1, self.waited + of_stage
            spins.after_stage()

    def read_clock(self) -> float:
        self.ran += 0.01
        self.now += 0.01 + self.stops
        return self.now


def test_a_rank_that_waited_for_its_cpu_says_when_it_went_on(monkeypatch: pytest.MonkeyPatch) -> None:
    events = Waiting(monkeypatch, stops=0.09, of_stage=2.0).events
    assert len(events) == work_timing.MOST_SPINS
    assert events[0] == {"ran": 0.08, "seconds": 0.7, "ends": [pytest.approx(0.1 * turn) for turn in range(2, 9)]}


@pytest.mark.parametrize(("stops", "of_stage"), [(0.0, 2.0), (0.09, 0.01)], ids=["nothing stops it", "had its CPU"])
def test_a_rank_that_runs_spins_hardly_and_says_nothing(
    monkeypatch: pytest.MonkeyPatch, stops: float, of_stage: float
) -> None:
    rank = Waiting(monkeypatch, stops, of_stage)
    assert rank.events == [] and rank.now <= 8 * 0.1


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

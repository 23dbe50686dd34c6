"""The soak stage in intervals: how quick and how right each of them was."""

from __future__ import annotations

import time

from doctor.smoke.programs.worker.collective_test import CollectiveTest
from doctor.smoke.programs.worker.context import RankContext
from doctor.smoke.programs.worker.host_sensors import Sensors
from doctor.smoke.programs.worker.libraries import torch
from doctor.smoke.programs.worker.stage_pace import compute_work, pace_factors, seconds_without_run_queue
from doctor.smoke.programs.worker.work_timing import CpuTour

MINUTE = 60.0
"""Seconds of an interval, where the soak is long enough."""
FEWEST_INTERVALS, MOST_INTERVALS = 8, 240
MOST_EVENTS = 100_000
"""Of all ranks together."""
KEPT = 30
"""Times of an interval that a rank reports."""
PIECES = 4
"""Pieces of work in a turn."""


def interval_seconds(soak: float, world: int) -> float:
    """A minute; less where there would be few of them, more where all ranks would report too many."""
    most = max(FEWEST_INTERVALS, min(MOST_INTERVALS, MOST_EVENTS // max(1, world)))
    return max(min(MINUTE, soak / FEWEST_INTERVALS), soak / most)


def some_of(numbers: list[float]) -> list[float]:
    """At most `KEPT` of them, evenly."""
    step = max(1.0, len(numbers) / KEPT)
    return [numbers[int(step * place)] for place in range(min(len(numbers), KEPT))]


class SoakIntervals:
    """Times work and a collective in each turn, and emits what an interval had when it is over."""

    def __init__(self, ctx: RankContext) -> None:
        self.ctx, self.length = ctx, interval_seconds(ctx.plan["soak"], ctx.world_size)
        self.number, self.turns, self.began = 0, 0, time.monotonic()
        self.compute: list[float] = []
        self.reduce: list[float] = []
        self.results, self.wrong = ctx.compared_results, ctx.wrong_results
        self.factors = pace_factors(ctx)
        self.nbytes = min(1 << 20, ctx.plan["max_bytes"])
        self.message = torch.zeros(max(1, self.nbytes // 4), device=ctx.device)
        is_first = ctx.hosts.index(ctx.hosts[ctx.rank]) == ctx.rank
        self.sensors = Sensors(ctx.device.type) if is_first else None
        if self.sensors:
            self.sensors.ask()
        compute_work(ctx, self.factors)

    def turn(self, test: CollectiveTest, remaining: float) -> None:
        """``test``: of the world; ``remaining``: seconds of the stage, the same on every rank."""
        number = int((self.ctx.plan["soak"] - remaining) / self.length)
        if number > self.number:
            self.emit()
            self.number = number
        tour = CpuTour(self.ctx)
        try:
            tour.move(self.turns)
            self.ctx.recorder.mark("compute")
            work = [seconds_without_run_queue(lambda: compute_work(self.ctx, self.factors)) for _ in range(PIECES)]
        finally:
            tour.end()
        self.compute += work[1:]  # the first one of a CPU warms its caches
        self.turns += 1
        self.ctx.comm.all_reduce(self.message, test.group)  # who comes late is waited for here, and not timed
        started = time.perf_counter()
        self.ctx.comm.all_reduce(self.message, test.group)
        self.reduce.append(round(time.perf_counter() - started, 7))

    def emit(self) -> None:
        """The interval that is over; the next one begins."""
        ctx, now = self.ctx, time.monotonic()
        temperatures, errors = self.sensors.read() if self.sensors else ({}, {})
        ctx.emit(
            "interval",
            number=self.number,
            start=round(self.number * self.length, 3),
            seconds=round(now - self.began, 3),
            calls=ctx.compared_results - self.results,
            wrong=ctx.wrong_results - self.wrong,
            compute=some_of(self.compute),
            reduce=some_of(self.reduce),
            bytes=self.message.numel() * 4,
            temperatures=temperatures,
            errors=errors,
        )
        self.began, self.compute, self.reduce = now, [], []
        self.results, self.wrong = ctx.compared_results, ctx.wrong_results
        if self.sensors:
            self.sensors.ask()

    def end(self) -> None:
        """The last interval."""
        if self.reduce:
            self.emit()
        if self.sensors:
            self.sensors.end()

"""How long pieces of work take on this host, without what other programs take."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from doctor.smoke.programs.cpu_quota import has_quota, quota_folders, throttling
from doctor.smoke.programs.worker.context import RankContext, run_queue_seconds


class WorkTimer:
    """Times pieces of work without the time that they were ready to run and another program had the CPU.

    What this process's own CPU quota held it back for is no such time: the job will meet it, too. A quota of 40 ms in
    100 ms strikes a few of many short pieces, so it is spread over all of them.
    """

    def __init__(self) -> None:
        self.folders = [folder for folder in quota_folders(os.getpid()) if has_quota(folder)]
        self.pieces: list[float] = []
        self.held = self.waited = 0.0

    def run(self, work: Callable[[], None]) -> None:
        """One piece."""
        waited, held, started = run_queue_seconds(), self._held_so_far(), time.perf_counter()
        work()
        elapsed = time.perf_counter() - started
        waited = run_queue_seconds() - waited
        own = max(0.0, min(waited, self._held_so_far() - held))
        self.held, self.waited = self.held + own, self.waited + waited - own
        self.pieces.append(max(1e-7, elapsed - waited))

    def seconds(self) -> list[float]:
        """Of each piece."""
        share = 1 + self.held / sum(self.pieces) if self.pieces else 1.0
        return [round(piece * share, 7) for piece in self.pieces]

    def _held_so_far(self) -> float:
        return max((throttling(folder)[2] for folder in self.folders), default=0.0)


class CpuTour:
    """Moves a rank that computes on CPUs from CPU to CPU: the neighbour of a busy one is slower, which is no fault."""

    def __init__(self, ctx: RankContext) -> None:
        self.rank = ctx.rank
        self.cpus = sorted(os.sched_getaffinity(0)) if ctx.device.type == "cpu" else []

    def move(self, step: int) -> bool:
        """Whether the rank is on another CPU from now on."""
        if len(self.cpus) < 2:
            return False
        os.sched_setaffinity(0, {self.cpus[(self.rank + step) % len(self.cpus)]})
        return True

    def end(self) -> None:
        """Back to all CPUs."""
        if len(self.cpus) > 1:
            os.sched_setaffinity(0, self.cpus)

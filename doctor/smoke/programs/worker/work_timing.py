"""How long a piece of work takes on this host, without what other programs take."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from doctor.smoke.programs.cpu_quota import has_quota, quota_folders, throttling
from doctor.smoke.programs.worker.context import RankContext, run_queue_seconds


class QuotaClock:
    """For how long the CPU quotas of this process's control groups have held it back."""

    def __init__(self) -> None:
        self.folders = [folder for folder in quota_folders(os.getpid()) if has_quota(folder)]

    def seconds(self) -> float:
        """So far; 0 without a quota."""
        return max((throttling(folder)[2] for folder in self.folders), default=0.0)


def seconds_at_full_share(work: Callable[[], None], quota: QuotaClock) -> float:
    """Seconds of one piece of work, less the time that it was ready to run and another program had the CPU.

    What its own CPU quota held it back for counts: the job will meet it, too.
    """
    waited, held, started = run_queue_seconds(), quota.seconds(), time.perf_counter()
    work()
    elapsed = time.perf_counter() - started
    others = max(0.0, run_queue_seconds() - waited - (quota.seconds() - held))
    return max(1e-7, round(elapsed - others, 7))


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

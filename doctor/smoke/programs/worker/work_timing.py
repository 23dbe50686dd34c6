"""How long pieces of work take on this host, without what other programs take."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from doctor.smoke.programs.cpu_quota import has_quota, quota_folders, throttling
from doctor.smoke.programs.worker.context import RankContext, run_queue_seconds

MIN_WAITED, WAITED_SHARE = 0.2, 0.3
"""Seconds of a stage that a rank waited for a CPU, and their share of what it ran and waited, from which it spins."""
SPIN_SECONDS, SPIN_CPU, MOST_SPINS = 0.65, 0.06, 5
STOPPED = 0.02
"""Seconds between two turns of a loop from which on something stopped it."""


class WorkTimer:
    """Times pieces of work without the time that they were ready to run and another program had the CPU.

    What this process's own CPU quota held it back for is no such time: the job will meet it, too. A quota of 40 ms in
    100 ms strikes a few of many short pieces, so it is spread over all of them. The kernel counts it late, in a later
    piece than the one that it struck, so that only the sum over all pieces is known.
    """

    def __init__(self) -> None:
        self.folders = [folder for folder in quota_folders(os.getpid()) if has_quota(folder)]
        self.pieces: list[float] = []
        self.ready = 0.0
        """Seconds of all pieces in which they were ready to run and did not."""
        self.held_before = 0.0

    def run(self, work: Callable[[], None]) -> None:
        """One piece; it took no less than what it had of its CPU."""
        if not self.pieces:
            self.held_before = self._held_so_far()
        ready, used, started = run_queue_seconds(), time.thread_time(), time.perf_counter()
        work()
        elapsed, used = time.perf_counter() - started, time.thread_time() - used
        ready = run_queue_seconds() - ready
        self.ready += ready
        self.pieces.append(max(1e-7, used, elapsed - ready))

    @property
    def held(self) -> float:
        """Seconds, so far, for which the process's own quota held the pieces back."""
        return max(0.0, min(self.ready, self._held_so_far() - self.held_before))

    @property
    def waited(self) -> float:
        """Seconds, so far, in which other programs had the CPU."""
        return self.ready - self.held

    def seconds(self) -> list[float]:
        """Of each piece."""
        share = 1 + self.held / sum(self.pieces) if self.pieces else 1.0
        return [round(piece * share, 7) for piece in self.pieces]

    def _held_so_far(self) -> float:
        return max((throttling(folder)[2] for folder in self.folders), default=0.0)


class CpuSpins:
    """Loops without a call, between stages, of a rank that mostly waits for its CPU. It draws no conclusion.

    A CPU quota stops a loop whenever it is used up, and the kernel lets all that the quota holds go on at the end of
    its period of 100 ms (Documentation/scheduler/sched-bwc.rst): also where the control group is not shown, and
    under any other load of the host. Other programs interrupt a loop at moments of no such order.
    """

    def __init__(self, ctx: RankContext) -> None:
        self.emit = ctx.emit
        rank_count = ctx.hosts.count(ctx.hosts[ctx.rank])
        self.cpu_seconds = SPIN_CPU * min(1.0, len(os.sched_getaffinity(0)) / rank_count)
        self.remaining, self.before = MOST_SPINS, self.ran_and_waited()

    @staticmethod
    def ran_and_waited() -> tuple[float, float]:
        return time.thread_time(), run_queue_seconds()

    def after_stage(self) -> None:
        """One loop, where the rank waited for a CPU for much of the stage and its peers are not known to have done."""
        ran, waited = (now - before for now, before in zip(self.ran_and_waited(), self.before))
        if self.remaining and waited >= MIN_WAITED and waited >= WAITED_SHARE * (ran + waited):
            self.spin()
        self.before = self.ran_and_waited()

    def spin(self) -> None:
        """Computes until it is clear that nothing stops it, or for `SPIN_SECONDS`; emits when it went on again."""
        ends = []
        used, started = time.thread_time(), time.monotonic()
        last = started
        while last < started + SPIN_SECONDS:
            now = time.monotonic()
            if now - last >= STOPPED:
                ends.append(round(now, 4))
            last = now
            if not ends and time.thread_time() - used > self.cpu_seconds:
                return
        self.remaining -= 1
        ran = round(time.thread_time() - used, 4)
        self.emit("spun", ran=ran, seconds=round(last - started, 4), ends=ends)


class CpuTour:
    """Moves a rank that computes on CPUs from CPU to CPU: the neighbour of a busy one is slower, which is no fault."""

    def __init__(self, ctx: RankContext) -> None:
        self.rank = ctx.rank
        self.cpus = sorted(os.sched_getaffinity(0)) if ctx.device.type == "cpu" else []

    def move(self, step: int) -> bool:
        """Whether the rank is on another CPU from now on. Where a sandbox forbids the call, it stays where it is."""
        if len(self.cpus) < 2:
            return False
        try:
            os.sched_setaffinity(0, {self.cpus[(self.rank + step) % len(self.cpus)]})
        except OSError:
            self.cpus = []
        return bool(self.cpus)

    def end(self) -> None:
        """Back to all CPUs."""
        if len(self.cpus) > 1:
            os.sched_setaffinity(0, self.cpus)

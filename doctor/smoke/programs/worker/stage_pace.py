"""Stage ``pace``: the same work on every rank, so that a slow one stands out."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence

from doctor.smoke.programs.worker.confirmations import LOOKS_SLOW, repeat_while_slow
from doctor.smoke.programs.worker.context import STAGE_FUNCTIONS, RankContext, run_queue_seconds
from doctor.smoke.programs.worker.libraries import torch
from doctor.smoke.programs.worker.work_timing import CpuTour

PACE_STEPS, RUNS_PER_STEP = 20, 3


def input_work(ctx: RankContext) -> None:
    """What preparing a batch is like: numbers drawn, sorted, moved to the device. A third of a millisecond."""
    values = [random.random() for _ in range(900)]
    values.sort()
    torch.tensor(values).to(ctx.device)


def compute_work(ctx: RankContext, factors: torch.Tensor) -> None:
    """A chain of matrix products: half a millisecond on CPUs, one on accelerators."""
    product = factors
    for _ in range(2 if ctx.device.type == "cpu" else 4):
        product = torch.mm(product, factors)
    ctx.comm.synchronize()


def pace_factors(ctx: RankContext) -> torch.Tensor:
    """What `compute_work` multiplies."""
    on_cpu = ctx.device.type == "cpu"
    return torch.eye(192 if on_cpu else 4096, dtype=torch.float32 if on_cpu else torch.float16, device=ctx.device)


def seconds_without_run_queue(work: Callable[[], None]) -> float:
    """Seconds of one piece of work, less the time that it was ready to run and waited for a CPU."""
    waited, started = run_queue_seconds(), time.perf_counter()
    work()
    elapsed = time.perf_counter() - started
    return max(0.0, round(elapsed - (run_queue_seconds() - waited), 7))


def stage_pace(ctx: RankContext) -> None:
    """Times input work and compute work, without any communication; again, at other times, where a rank looks slow."""
    on_cpu, factors = ctx.device.type == "cpu", pace_factors(ctx)
    work_by_kind: dict[str, Callable[[], None]] = {
        "input": lambda: input_work(ctx),
        "compute": lambda: compute_work(ctx, factors),
    }
    for work in work_by_kind.values():
        work()

    def measure(kinds: Sequence[str], attempt: int) -> dict[str, list[float]]:
        """Both kinds of work each time: a rank that is as slow in both has one cause."""
        ctx.comm.barrier()
        seconds = timed_work(ctx, work_by_kind)
        ctx.emit("pace", **seconds, attempt=attempt)
        return seconds

    model = "" if on_cpu else str(getattr(torch, ctx.device.type).get_device_properties(ctx.device).name)[:100]
    repeat_while_slow(ctx, dict.fromkeys(work_by_kind, LOOKS_SLOW), model, measure)


def timed_work(ctx: RankContext, work_by_kind: Mapping[str, Callable[[], None]]) -> dict[str, list[float]]:
    """Seconds of each piece of work, by its kind.

    CPU ranks move from CPU to CPU: the neighbour of a busy CPU is a third slower for seconds, which is no fault.
    """
    tour = CpuTour(ctx)
    seconds: dict[str, list[float]] = {kind: [] for kind in work_by_kind}
    try:
        for step in range(PACE_STEPS):
            ctx.recorder.step = step
            if tour.move(step):
                work_by_kind["compute"]()
            for kind, work in work_by_kind.items():
                ctx.recorder.mark(kind)
                seconds[kind] += [seconds_without_run_queue(work) for _ in range(RUNS_PER_STEP)]
    finally:
        tour.end()
    ctx.recorder.mark("compute")
    return seconds


STAGE_FUNCTIONS["pace"] = stage_pace

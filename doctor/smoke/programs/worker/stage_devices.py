"""Stage ``devices``: each rank tests its own device, all at the same time, for results and for speed."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from doctor.smoke.programs.worker.confirmations import CONFIRMATION_SHARE, LOOKS_SLOW, repeat_while_slow
from doctor.smoke.programs.worker.context import STAGE_FUNCTIONS, RankContext, device_model
from doctor.smoke.programs.worker.device_work import DEVICE_WORK, DeviceWork, is_unsupported, pattern, report_wrong
from doctor.smoke.programs.worker.libraries import torch
from doctor.smoke.programs.worker.work_timing import CpuTour, WorkTimer

SECONDS_ON_CPU, SECONDS_ON_DEVICE = 0.15, 1.2
"""Of one kind of work, without its checks; more tells no more."""
MIN_PIECES, MAX_PIECES = 15, 120
PIECES_PER_CPU = 5
EXCHANGES = 15
NEIGHBOUR_TEST = "device to device"
COPY_LOOKS_SLOW = 1.5
"""Of copies on CPUs, as `LOOKS_SLOW` is of all other work: what shares their caches and memory is often no fault."""


def measure(ctx: RankContext, test: str, work: DeviceWork, model: str, end: float, attempt: int) -> list[float]:
    """Repeats the work until it is enough, or ``end`` of the monotonic clock; emits times and wrong results.

    The seconds of each piece.
    """
    tour, timer, wrong = CpuTour(ctx), WorkTimer(), 0
    enough = SECONDS_ON_CPU if ctx.device.type == "cpu" else SECONDS_ON_DEVICE
    work.run()
    ctx.recorder.step = 1
    try:
        while len(timer.pieces) < MAX_PIECES:
            count = len(timer.pieces)
            done = count >= MIN_PIECES and sum(timer.pieces) > enough
            if done or time.monotonic() > end:
                break
            ctx.recorder.mark("compute")
            if count % PIECES_PER_CPU == 0 and tour.move(count // PIECES_PER_CPU):
                work.run()
            timer.run(work.run)
            wrong += not work.is_right()
    finally:
        tour.end()
    if wrong:
        report_wrong(ctx, test, "repeat" if test.startswith("product") else "copy", wrong, len(timer.pieces))
    seconds = timer.seconds()
    ctx.emit(
        "device",
        test=test,
        model=model,
        amount=work.amount,
        seconds=seconds,
        fingerprint=work.fingerprint,
        waited=round(timer.waited, 4),
        attempt=attempt,
    )
    return seconds


def neighbours(ctx: RankContext) -> list[int]:
    """The ranks of this host that this one exchanges with: one a round, in two rounds at most; -1 where it rests."""
    mine = [rank for rank, host in enumerate(ctx.hosts) if host == ctx.hosts[ctx.rank]]
    place, count = mine.index(ctx.rank), len(mine)
    first, second = place ^ 1, ((place + 1) ^ 1) - 1
    if count > 2 and count % 2 == 0:
        second %= count
    rounds = (first, second) if count > 2 else (first,)
    return [mine[other] if 0 <= other < count and count > 1 else -1 for other in rounds]


def exchange_with_neighbours(ctx: RankContext, model: str) -> None:
    """Between two devices of one host, both ways at once; the speeds of the quicker round are those of this device."""
    nbytes, wrong, compared = 1 << 20 if ctx.device.type == "cpu" else 64 << 20, 0, 0
    best: list[float] = []
    for peer in neighbours(ctx):
        if peer < 0 or not ctx.comm.can_form((ctx.rank, peer)):
            continue
        seconds: list[float] = []
        element = torch.zeros(1, device=ctx.device)
        ctx.comm.exchange(torch.empty_like(element), element, peer)
        sent, expected = (pattern(ctx, nbytes, rank).to(ctx.device) for rank in (ctx.rank, peer))
        received = torch.zeros_like(expected)
        for _ in range(EXCHANGES):
            started = time.perf_counter()
            ctx.comm.exchange(received, sent, peer)
            seconds.append(max(1e-7, round(time.perf_counter() - started, 7)))
            compared, wrong = compared + 1, wrong + (not torch.equal(received, expected))
            received.zero_()
        if not best or sorted(seconds)[len(seconds) // 2] < sorted(best)[len(best) // 2]:
            best = seconds
    if wrong:
        report_wrong(ctx, NEIGHBOUR_TEST, "copy", wrong, compared)
    if best:
        ctx.emit(
            "device", test=NEIGHBOUR_TEST, model=model, amount=2.0 * nbytes, seconds=best, fingerprint=None, waited=0.0,
            attempt=0,
        )  # fmt: skip
    else:
        ctx.emit("untested", test=NEIGHBOUR_TEST, text="the rank is alone on its host")


def stage_devices(ctx: RankContext) -> None:
    """Every kind of work in turn, begun by all ranks together, so that what devices share is shared by equals.

    Again, at other times, those in which a device looks slow.
    """
    model, on_cpu = device_model(ctx), ctx.device.type == "cpu"
    if not on_cpu:
        # Otherwise a product may be added up in another order each time, and be no fault.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
    factors = {
        test: COPY_LOOKS_SLOW if on_cpu and not test.startswith("product") else LOOKS_SLOW for test in DEVICE_WORK
    }
    try:
        repeat_while_slow(ctx, factors, model, lambda tests, attempt: measure_tests(ctx, tests, model, attempt))
    finally:
        if not on_cpu:
            torch.use_deterministic_algorithms(False)
    ctx.recorder.step = 0
    exchange_with_neighbours(ctx, model)
    ctx.recorder.mark("compute")


def measure_tests(ctx: RankContext, tests: Sequence[str], model: str, attempt: int) -> dict[str, list[float]]:
    """Seconds of each piece of work, of those of the tests that the device can do."""
    started, share = time.monotonic(), ctx.plan["device_seconds"] / (1 + len(DEVICE_WORK))
    if attempt:
        share = min(share, ctx.plan["budget"] / CONFIRMATION_SHARE / len(tests))
    seconds = {}
    for number, test in enumerate(tests):
        ctx.comm.barrier()
        ctx.recorder.step = 0
        ctx.recorder.mark("compute")
        try:
            end = started + (number + 1) * share
            seconds[test] = measure(ctx, test, DEVICE_WORK[test](ctx), model, end, attempt)
        except (RuntimeError, AttributeError, TypeError) as error:
            if not is_unsupported(error):
                raise
            if not attempt:
                reason = (str(error).strip().splitlines() or [""])[0][:300]
                ctx.emit("untested", test=test, text=reason)
    return seconds


STAGE_FUNCTIONS["devices"] = stage_devices

"""Stage ``collectives``: every collective on every process group, in every dtype."""

from __future__ import annotations

import time
from collections.abc import Sequence

from doctor.remote.runtime.host_texts import filled
from doctor.smoke.programs.worker.collective_test import CollectiveTest
from doctor.smoke.programs.worker.context import STAGE_FUNCTIONS, RankContext
from doctor.smoke.programs.worker.libraries import torch
from doctor.smoke.programs.worker.mesh import partition_groups
from doctor.smoke.programs.worker.second_round import run_second_round

MOVING_OPS = ("broadcast", "all_gather", "all_to_all")
REDUCING_OPS = ("all_reduce", "reduce", "reduce_scatter")
TIMED_OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
BUDGET_SHARE = 20
"""Timing one message size may take the run's budget divided by this."""


def other_dtypes(ctx: RankContext) -> list[torch.dtype]:
    """The dtypes to test besides float32, which every other test uses; first the one in which jobs sum gradients."""
    names = ["bfloat16", "float16", "float64", "int8", "uint8", "int32", "int64", "bool"]
    module = getattr(torch, ctx.device.type)
    if ctx.device.type != "cpu" and not getattr(module, "is_bf16_supported", lambda: True)():
        names.remove("bfloat16")  # it would fail asynchronously, where the error can no longer be attributed
        ctx.emit("unsupported", gid=0, op="", dtype="bfloat16", text="the device has no bfloat16")
    return [getattr(torch, name) for name in names]


def roots_to_test(ranks: list[int]) -> list[int]:
    """All of a small group, four of a large one."""
    return ranks if len(ranks) <= 8 else [ranks[len(ranks) * part // 4] for part in range(4)]


def check_dtypes(ctx: RankContext, test: CollectiveTest) -> None:
    """Every dtype. On CPUs each of them is moved once and reduced once.

    There a collective takes milliseconds, and what moves bytes does not depend on what they mean.
    """
    ranks = test.group.ranks
    for turn, dtype in enumerate(other_dtypes(ctx)):
        for ops in (MOVING_OPS, REDUCING_OPS):
            for op in ops if ctx.device.type != "cpu" else ops[turn % 3 : turn % 3 + 1]:
                test.run(op, dtype, root=ranks[turn % test.size])
    test.run("all_reduce", reduction="max")
    test.run("all_reduce", reduction="min")
    test.run("all_reduce", reduction="avg")


def check_every_op(test: CollectiveTest, nbytes: int = 0) -> None:
    """Every collective once; broadcast from every root.

    On CPUs two roots are enough for reduce: no later stage relies on it.
    """
    roots = roots_to_test(test.group.ranks)
    for root in roots:
        test.run("broadcast", nbytes=nbytes, root=root)
    for root in roots if test.ctx.device.type != "cpu" else sorted({roots[0], roots[-1]}):
        test.run("reduce", nbytes=nbytes, root=root)
    for op in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        test.run(op, nbytes=nbytes)
    if test.has_ring():
        test.run("send_recv", nbytes=nbytes)
    test.comm.barrier(test.group)
    test.checked["barrier"] = ({}, 1)


def time_ops(test: CollectiveTest, nbytes: int, repeats: int, ops: Sequence[str] = TIMED_OPS) -> None:
    """Times collectives of this size.

    A root returns before its bytes have arrived; so the root is the last rank, as the first one reports the times.
    """
    for op in ops if repeats else ():
        test.run(op, nbytes=nbytes, root=test.group.ranks[-1], repeats=repeats)


def message_sizes(largest: int) -> list[int]:
    """Bytes: factors of 16 that end with the largest, and none below a megabyte but the largest."""
    sizes = [largest]
    while sizes[0] >= 16 << 20:
        sizes.insert(0, sizes[0] // 16)
    return sizes


def stage_collectives(ctx: RankContext) -> None:
    """Every collective on every process group, with values that reveal a wrong rank, root, order or length."""
    world = CollectiveTest(ctx, ctx.comm.world)
    check_every_op(world, nbytes=4)
    time_ops(world, 4, 3, ("all_reduce",))
    check_dtypes(ctx, world)
    allowed, largest = ctx.plan["budget"] / BUDGET_SHARE, ctx.plan["max_bytes"]
    for nbytes in message_sizes(largest):
        started = time.perf_counter()
        time_ops(world, nbytes, 1)
        elapsed = ctx.comm.agree(time.perf_counter() - started)
        time_ops(world, nbytes, min(2, int(allowed / elapsed)))
        if elapsed * 16 > allowed and nbytes < largest:
            text = filled("sizes above {0} bytes were left out: this one took {1} s", nbytes, f"{elapsed:.1f}")
            ctx.emit("unsupported", gid=0, op="", dtype="float32", text=text)
            break
    world.report(with_speed=ctx.is_first)
    for group, reports in partition_groups(ctx):
        test = CollectiveTest(ctx, group)
        if group.name.startswith("pp"):
            test.run("send_recv")  # the only exchange between pipeline stages
        else:
            check_every_op(test)
            time_ops(test, nbytes, 3 if elapsed < allowed / 20 else 1, ("all_reduce",))
        test.report(with_speed=reports)
    run_second_round(ctx)


STAGE_FUNCTIONS["collectives"] = stage_collectives

"""Stage ``soak``: the same collectives again and again, with fresh data, until the time that was asked for is over."""

from __future__ import annotations

import time

from doctor.smoke.programs.worker.collective_test import CollectiveTest
from doctor.smoke.programs.worker.context import STAGE_FUNCTIONS, RankContext

SOAK_OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
SOAK_BYTES = (4096, 65536)
"""Sizes of the messages, in turn."""
ROUNDS = 20
"""Between two decisions whether to go on."""


def stage_soak(ctx: RankContext) -> None:
    """Rounds of collectives over the world, each on values of its own and compared; rank 0's clock ends them.

    Emits what was wrong as it is found, up to a limit, and at the end the counts of all.
    """
    test, started, rounds = CollectiveTest(ctx, ctx.comm.world), time.monotonic(), 0
    while ctx.comm.agree(ctx.plan["soak"] - (time.monotonic() - started)) > 0:
        for _ in range(ROUNDS):
            rounds += 1
            test.offset = rounds
            nbytes = min(SOAK_BYTES[rounds % 2], ctx.plan["max_bytes"])
            for op in SOAK_OPS:
                test.run(op, nbytes=nbytes, root=test.group.ranks[rounds % test.size])
            if test.size > 1:
                test.run("send_recv", nbytes=nbytes)
    counts = {label: count for label, (_, count) in test.checked.items()}
    ctx.emit("soaked", counts=counts, wrong=test.wrong_counts, seconds=round(time.monotonic() - started, 3))


STAGE_FUNCTIONS["soak"] = stage_soak

"""Stage ``soak``: the same collectives again and again, with fresh data, until the time that was asked for is over."""

from __future__ import annotations

import time

from doctor.smoke.programs.worker.collective_test import CollectiveTest
from doctor.smoke.programs.worker.context import STAGE_FUNCTIONS, RankContext
from doctor.smoke.programs.worker.second_round import SECOND_ROUND_SECONDS, repeat_calls, run_second_round
from doctor.smoke.programs.worker.soak_intervals import SoakIntervals

REPEATS = 20
"""Between two decisions whether to go on."""
SECOND_ROUND_SHARE = 0.5
"""Of the stage's time, for the second round beyond its usual time: what is rare takes long to be seen again."""


def divisions(hosts: list[str]) -> list[list[list[int]]]:
    """Ways to part the world in two, each of two ranks and more: by a bit of the host's number, or of the rank's.

    Any two hosts are apart in one of them, so that a host which is wrong now and then is found by where it was.
    """
    names = list(dict.fromkeys(hosts))
    numbers = [names.index(host) for host in hosts] if len(names) > 1 else list(range(len(hosts)))
    pairs = []
    for bit in range(max(numbers).bit_length()):
        parts = [[rank for rank, number in enumerate(numbers) if number >> bit & 1 == value] for value in (0, 1)]
        if min(map(len, parts)) > 1:
            pairs.append(parts)
    return pairs


def stage_soak(ctx: RankContext) -> None:
    """Collectives of the world and of its divisions, by turns, each on values of its own and compared.

    Rank 0's clock ends them. Emits what was wrong as it is found, up to a limit, each interval when it is over, and at
    the end the counts of all.
    """
    started, number, turn = time.monotonic(), 0, 0
    tests = [CollectiveTest(ctx, ctx.comm.world)]
    for parts in divisions(ctx.hosts):
        if not all(map(ctx.comm.can_form, parts)):
            continue
        groups = [ctx.comm.group(f"part {ranks[0]} of {len(ranks)}", ranks, together=True) for ranks in parts]
        tests += [CollectiveTest(ctx, group) for group in groups if ctx.rank in group.ranks]
    intervals = SoakIntervals(ctx)
    while (remaining := ctx.comm.agree(ctx.plan["soak"] - (time.monotonic() - started))) > 0:
        intervals.turn(tests[0], remaining)
        # Every second turn is the world's.
        test = tests[0] if turn % 2 == 0 or len(tests) == 1 else tests[1 + turn // 2 % (len(tests) - 1)]
        turn += 1
        for _ in range(REPEATS):
            number += 1
            repeat_calls(test, number, [])
    intervals.end()
    counts: dict[str, int] = {}
    wrong: dict[str, int] = {}
    sources: dict[int, int] = {}
    for test in tests:
        for label, (_, count) in test.checked.items():
            counts[label] = counts.get(label, 0) + count
        for op, count in test.wrong_counts.items():
            wrong[op] = wrong.get(op, 0) + count
        for rank, count in test.wrong_sources.items():
            sources[rank] = sources.get(rank, 0) + count
    ctx.emit("soaked", counts=counts, wrong=wrong, sources=sources, seconds=round(time.monotonic() - started, 3))
    run_second_round(ctx, SECOND_ROUND_SECONDS + SECOND_ROUND_SHARE * ctx.plan["soak"])


STAGE_FUNCTIONS["soak"] = stage_soak

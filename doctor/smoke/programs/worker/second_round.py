"""The second round of collectives, after wrong results: in halves of the world, until it is known who makes them."""

from __future__ import annotations

import json
import time
from typing import Any, Tuple

from doctor.smoke.programs.worker.collective_test import MAX_REPORTED, CollectiveTest
from doctor.smoke.programs.worker.context import RankContext
from doctor.smoke.programs.worker.group_search import Isolation, Unit, isolate
from doctor.smoke.programs.worker.libraries import torch

REPEATED_OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
REPEATED_BYTES = (4096, 65536)
"""Sizes of the messages, in turn."""
SECOND_ROUND_SECONDS = 20.0
"""For the whole second round; no group is tested after that."""
FIRST_REPEATS, MOST_REPEATS = 10, 400
"""Repeats of all calls between two counts of what was wrong, and for one group."""
ENOUGH_WRONG = 3
"""Wrong results, of the world, that tell how often they occur."""
CONFIDENCE = 3.0
"""A group is right if it had so many times the calls that bring one wrong result: by chance in 5 % (e^-3) only."""
REPORTED_WRONG = 3
"""Wrong results that one rank reports for one tested group."""
FIRST_NUMBER = 1 << 20
"""Of the repeats: the data of no other stage."""
MAX_WRONG_CALLS = 6
"""Kinds of calls that were wrong, to be repeated beside the others."""

WrongCall = Tuple[str, str, str, int]
"""Operation, reduction, dtype, elements."""


def repeat_calls(test: CollectiveTest, number: int, wrong_calls: list[WrongCall]) -> None:
    """Every collective once, and what was wrong before, on values that no other ``number`` has."""
    test.offset = number
    nbytes = min(REPEATED_BYTES[number % 2], test.ctx.plan["max_bytes"])
    root = test.group.ranks[number % test.size]
    for op in REPEATED_OPS:
        test.run(op, nbytes=nbytes, root=root)
    if test.has_ring():
        test.run("send_recv", nbytes=nbytes)
    for op, reduction, dtype, numel in wrong_calls:
        test.run(op, getattr(torch, dtype), nbytes=4 * numel, root=root, reduction=reduction)


class GroupRepetition:
    """Tests groups of the world's ranks with the same collectives, as often as the first wrong results make necessary.

    Every rank of the world takes part in every decision: rank 0 makes it, and the others get it through the store.
    """

    def __init__(self, ctx: RankContext, wrong_calls: list[WrongCall], seconds: float) -> None:
        self.ctx, self.comm, self.wrong_calls = ctx, ctx.comm, wrong_calls
        self.limit = seconds
        self.started = time.monotonic()
        self.number = FIRST_NUMBER
        """Of the next repeat: other data each time."""
        self.tested = self.batches = 0
        self.first = (0, 0)
        """Calls of the world, and wrong results of the rank that had most."""
        self.last_wrong = (0, 0, 0)
        """Ranks of the smallest group that was wrong, its calls, and its wrong results."""
        self.total = 0
        """Calls of all groups."""
        self.calls_per_repeat = 1.0

    def test_groups(self, groups: list[list[Unit]]) -> list[bool | None]:
        """See `group_search.TestGroups`. The first group is the world, which shows how often a result is wrong."""
        ranks = [sorted(rank for unit in group for rank in unit) for group in groups]
        self.tested += 1
        if self.tested == 1:
            return self.test_world(ranks[0])
        if not all(map(self.comm.can_form, ranks)):
            return [None] * len(groups)
        needed = [self.needed_calls(len(members)) for members in ranks]
        counts = self.run_groups(ranks, min(MOST_REPEATS, int(max(needed) / self.calls_per_repeat) + 1))
        if counts is None:
            return [None] * len(groups)
        for members, (compared, bad) in zip(ranks, counts):
            if bad and len(members) <= self.last_wrong[0]:
                self.last_wrong = (len(members), compared, bad)
        return [True if bad else False if compared >= least else None for (compared, bad), least in zip(counts, needed)]

    def needed_calls(self, size: int) -> float:
        """Calls of a group of this size that would show what was wrong before.

        A rank sends less often in a smaller group, so that what is wrong on its way is so less often.
        """
        ranks, calls, wrong = self.last_wrong
        return CONFIDENCE * calls / wrong * max(1.0, (ranks - 1) / (size - 1))

    def test_world(self, ranks: list[int]) -> list[bool | None]:
        """Repeats until something is wrong a few times, or a third of the time is over."""
        calls = wrong = 0
        while wrong < ENOUGH_WRONG:
            counts = self.run_groups([ranks], FIRST_REPEATS)
            if counts is None:
                break
            calls, wrong = calls + counts[0][0], wrong + counts[0][1]
            if self.comm.agree(time.monotonic() - self.started) > self.limit / 3:
                break
        self.first, self.last_wrong = (calls, wrong), (len(ranks), calls, wrong)
        self.calls_per_repeat = calls / max(1, self.number - FIRST_NUMBER)
        return [wrong > 0]

    def run_groups(self, groups: list[list[int]], repeats: int) -> list[tuple[int, int]] | None:
        """Of each group the calls, and the wrong results of the rank that had most; None when the time is over."""
        if self.comm.agree(time.monotonic() - self.started) > self.limit:
            return None
        self.batches += 1
        formed = [
            self.comm.group(f"half {self.batches}.{number}", ranks, together=True)
            for number, ranks in enumerate(groups)
        ]
        compared = bad = 0
        for group in formed:
            if self.ctx.rank in group.ranks:
                test = CollectiveTest(self.ctx, group)
                test.reported = MAX_REPORTED - REPORTED_WRONG
                for number in range(self.number, self.number + repeats):
                    repeat_calls(test, number, self.wrong_calls)
                compared = sum(count for _, count in test.checked.values())
                bad = sum(test.wrong_counts.values())
        self.number += repeats
        texts = self.comm.collect(f"{compared} {bad}", [rank for ranks in groups for rank in ranks])
        counts: list[Any] = [tuple(map(int, text.split())) for text in texts]
        merged = []
        for ranks in groups if counts else ():
            part, counts = counts[: len(ranks)], counts[len(ranks) :]
            merged.append((max(calls for calls, _ in part), max(wrong for _, wrong in part)))
        merged = [(calls, wrong) for calls, wrong in json.loads(self.comm.share(json.dumps(merged)))]
        self.total += sum(calls for calls, _ in merged)
        return merged

    def emit(self, isolation: Isolation | None) -> None:
        """Emits ``isolated``: what rank 0 makes of it, which is what every rank makes of it."""
        if self.ctx.is_first:
            result = isolation or Isolation()
            self.ctx.emit(
                "isolated", recurred=isolation is not None, calls=self.first[0], wrong=self.first[1],
                culprits=result.culprits, outward=result.outward, links=result.links, unclear=result.unclear,
                groups=self.tested, total=self.total, seconds=round(time.monotonic() - self.started, 3),
            )  # fmt: skip


def run_second_round(ctx: RankContext, seconds: float = SECOND_ROUND_SECONDS) -> None:
    """Does nothing where no rank of the world had a wrong result since the last time, of a collective or a training."""
    wrong, ctx.wrong_results = ctx.wrong_results, 0
    calls, ctx.wrong_calls = list(ctx.wrong_calls)[:MAX_WRONG_CALLS], {}
    if ctx.world_size < 2 or not ctx.comm.sum_over_ranks(wrong):
        return
    texts = ctx.comm.collect(json.dumps(calls), range(ctx.world_size))
    merged = list(dict.fromkeys(tuple(call) for text in texts for call in json.loads(text)))[:MAX_WRONG_CALLS]
    agreed = [tuple(call) for call in json.loads(ctx.comm.share(json.dumps(merged)))]
    ranks_of_host: dict[str, list[int]] = {}
    for rank, host in enumerate(ctx.hosts):
        ranks_of_host.setdefault(host, []).append(rank)
    second = GroupRepetition(ctx, agreed, seconds)
    second.emit(isolate([tuple(ranks) for ranks in ranks_of_host.values()], second.test_groups))

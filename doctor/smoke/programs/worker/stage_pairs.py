"""Stage ``pairs``: pairs of hosts exchange messages, so that a slow link stands out."""

from __future__ import annotations

import itertools
import json
import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence

from doctor.smoke.programs.worker.context import STAGE_FUNCTIONS, RankContext
from doctor.smoke.programs.worker.libraries import torch

MAX_ALL_PAIRS = 32
"""Up to so many ranks, all pairs are measured."""
SLOW_FACTOR = 1.5
"""A pair that takes this many times as long as most pairs is measured again."""
MAX_SLOW_PAIRS = 64
PAIR_SECONDS = 2.0
"""Exchanges of a pair end after so long: on a link of 2 Mbit/s one megabyte takes 4 s."""
PAIRS_SHARE = 12
"""The rounds may take the run's budget divided by this, and so may the second measurements."""
SAMPLE_BYTES = 1 << 16
"""Of the messages that show how large a message the network can carry in that time."""


def round_robin(count: int, seed: int = 1) -> Iterator[list[tuple[int, int]]]:
    """The pairs of each round: in a round everyone has one partner; of an odd number, one rests. Circle method.

    Up to MAX_ALL_PAIRS every pair occurs once; of more, as many rounds as it takes to tell hosts apart.
    """
    even = count + count % 2
    rotations = list(range(even - 1))
    if count > MAX_ALL_PAIRS:
        rotations = random.Random(seed).sample(rotations, count.bit_length() + 2)
    for rotation in rotations:
        circle = [0] + [1 + (place + rotation) % (even - 1) for place in range(even - 1)]
        pairs = [sorted((circle[place], circle[-1 - place])) for place in range(even // 2)]
        yield [(low, high) for low, high in pairs if high < count]


def paired_ranks(ctx: RankContext) -> list[int]:
    """The ranks that are paired: the first of each host, or all of a single host."""
    first_ranks: dict[str, int] = {}
    for rank, host in enumerate(ctx.hosts):
        first_ranks.setdefault(host, rank)
    return list(first_ranks.values()) if len(first_ranks) > 1 else list(range(ctx.world_size))


def time_exchanges(ctx: RankContext, peer: int, nbytes: int, repeats: int) -> list[float]:
    """Seconds of exchanges with the peer, both ways at once. A first one, of one element, synchronizes the two.

    One at least, then as many as fit into PAIR_SECONDS by the first one; the two agree on how many those are.
    """
    element = torch.zeros(1, device=ctx.device)
    answer = torch.empty_like(element)
    ctx.comm.exchange(answer, element, peer)
    tensor = torch.full((max(1, nbytes // 4),), float(ctx.rank), device=ctx.device)
    out, allowed = torch.empty_like(tensor), 1.0
    seconds: list[float] = []
    while len(seconds) < min(repeats, allowed):
        started = time.perf_counter()
        ctx.comm.exchange(out, tensor, peer)
        seconds.append(round(time.perf_counter() - started, 7))
        if len(seconds) == 1 < repeats:
            element.fill_(seconds[0])
            ctx.comm.exchange(answer, element, peer)
            allowed = PAIR_SECONDS / max(element.item(), answer.item(), 1e-6)
    return seconds


def message_bytes(
    ctx: RankContext, schedule: Sequence[Sequence[tuple[int, int]]], ranks: Sequence[int], largest: int
) -> int:
    """Bytes of a message that the slowest of the first two rounds' pairs can exchange in all rounds, on every rank.

    Agreed upon through the store: a collective that is wrong must not part the ranks.
    """
    slowest = 0.0
    for pairs in schedule[:2]:
        for pair in pairs:
            if ctx.rank in pair:
                peer = pair[0] if ctx.rank == pair[1] else pair[1]
                slowest = max(slowest, *time_exchanges(ctx, peer, SAMPLE_BYTES, 1))
    slowest = ctx.comm.agree(max(map(float, ctx.comm.collect(repr(slowest), ranks)), default=slowest))
    nbytes, allowed = largest, ctx.plan["budget"] / PAIRS_SHARE
    while nbytes > SAMPLE_BYTES and slowest * nbytes / SAMPLE_BYTES * len(schedule) > allowed:
        nbytes //= 2
    return nbytes


def measure_pair(
    ctx: RankContext,
    pair: tuple[int, int],
    round_number: int,
    nbytes: int,
    repeats: int,
    confirm: bool,
    control: bool = False,
) -> list[float]:
    """This rank's exchanges with the other rank of the pair. ``confirm``: the second time, with no other pair.

    ``control``: of a pair that is not suspected, between two that are.
    """
    peer = pair[0] if ctx.rank == pair[1] else pair[1]
    seconds = time_exchanges(ctx, peer, nbytes, repeats)
    ctx.emit("pair", peer=peer, round=round_number, bytes=nbytes, seconds=seconds, confirm=confirm, control=control)
    return seconds


def slow_pairs(
    schedule: Sequence[Sequence[tuple[int, int]]],
    times: Mapping[int, Sequence[float]],
    allowed: float = math.inf,
) -> list[tuple[tuple[int, int], int]]:
    """Pairs that took far longer than most, slowest first, with their round. ``times``: of each rank, by round.

    ``allowed``: seconds that exchanging again, one pair after the other, may take; the slowest pair in any case.
    """
    seconds_of_pair = {}
    for round_number, pairs in enumerate(schedule):
        for low, high in pairs:
            seconds_of_pair[low, high] = (max(times[low][round_number], times[high][round_number]), round_number)
    ordered = sorted(seconds_of_pair.values())
    usual = ordered[int(len(ordered) * 0.35)][0] if ordered else 0.0
    slow = sorted(
        (
            (seconds, round_number, pair)
            for pair, (seconds, round_number) in seconds_of_pair.items()
            if seconds > SLOW_FACTOR * usual
        ),
        reverse=True,
    )
    spent = list(itertools.accumulate(max(seconds, min(6 * seconds, PAIR_SECONDS)) for seconds, *_ in slow))
    return [
        (pair, round_number)
        for number, (_, round_number, pair) in enumerate(slow[:MAX_SLOW_PAIRS])
        if number == 0 or spent[number] <= allowed
    ]


def stage_pairs(ctx: RankContext) -> None:
    """Pairs exchange a message, all pairs of a round at once; then the slow ones again, each alone, beside others.

    Skipped on the CPUs of a single host: there is no link between them.
    """
    if ctx.device.type == "cpu" and len(set(ctx.hosts)) == 1:
        return
    ranks = paired_ranks(ctx)
    rounds = round_robin(len(ranks), ctx.plan["seed"])
    schedule = [[(ranks[low], ranks[high]) for low, high in pairs] for pairs in rounds]
    nbytes = message_bytes(ctx, schedule, ranks, min(1 << 20, ctx.plan["max_bytes"]))
    fastest = [0.0] * len(schedule)
    for round_number, pairs in enumerate(schedule):
        for pair in pairs:
            if ctx.rank in pair:
                fastest[round_number] = min(measure_pair(ctx, pair, round_number, nbytes, 5, confirm=False))
    answers = map(json.loads, ctx.comm.collect(json.dumps(fastest), ranks))
    times = dict(zip(ranks, answers))
    again = slow_pairs(schedule, times, ctx.plan["budget"] / PAIRS_SHARE) if len(times) == len(ranks) else []
    suspected = [((low, high), number) for (low, high), number in json.loads(ctx.comm.share(json.dumps(again)))]
    normal = [
        (pair, number) for number, pairs in enumerate(schedule) for pair in pairs if (pair, number) not in suspected
    ]
    # By turns with pairs that are not suspected: what disturbs the hosts now disturbs both.
    for turn, (pair, round_number) in enumerate(suspected):
        if ctx.rank in pair:
            measure_pair(ctx, pair, round_number, nbytes, 6, confirm=True)
        ctx.comm.barrier()
        if normal:
            other, number = normal[turn % len(normal)]
            if ctx.rank in other:
                measure_pair(ctx, other, number, nbytes, 6, confirm=True, control=True)
            ctx.comm.barrier()


STAGE_FUNCTIONS["pairs"] = stage_pairs

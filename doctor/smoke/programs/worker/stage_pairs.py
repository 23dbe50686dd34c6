"""Stage ``pairs``: pairs of hosts exchange messages, so that a slow link stands out."""

from __future__ import annotations

import itertools
import json
import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from doctor.smoke.programs.worker.collective_test import CollectiveTest
from doctor.smoke.programs.worker.confirmations import (
    CONFIRM_AT,
    CONFIRMATION_SHARE,
    middle,
    nearly_all_above,
    pause_before,
    still_slow,
)
from doctor.smoke.programs.worker.context import STAGE_FUNCTIONS, RankContext
from doctor.smoke.programs.worker.libraries import torch
from doctor.smoke.programs.worker.second_round import run_second_round

MAX_ALL_PAIRS = 32
"""Up to so many ranks, all pairs are measured."""
SLOW_FACTOR = 1.5
"""A pair that takes this many times as long as most pairs is measured again."""
SLOW_END_FACTOR = 1.15
"""So are the pairs of a rank where nearly all of them take this many times as long as most pairs of the others."""
MAX_SLOW_PAIRS = 64
FIRST_EXCHANGES, FEWEST_AGAIN, MOST_AGAIN = 8, 6, 20
"""Exchanges of a pair at first, and where it is measured again: on a busy machine one in ten may be undisturbed."""
PAIR_SECONDS, MORE_SECONDS = 2.0, 1.0
"""Exchanges of a pair end after so long, as on a link of 2 Mbit/s one megabyte takes 4 s; more than the fewest fit into
the second."""
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

    One at least, then as many as fit into PAIR_SECONDS by the first one; the two agree on how many those are. Every
    element that came is compared with what the peer sends, when the last one is over: comparing takes no time of them.
    """
    element = torch.zeros(1, device=ctx.device)
    answer = torch.empty_like(element)
    ctx.comm.exchange(answer, element, peer)
    tensor = payload(ctx, ctx.rank, nbytes).to(ctx.device)
    test, expected = pair_test(ctx), payload(ctx, peer, nbytes)
    received, allowed = [test.poisoned(expected) for _ in range(repeats)], 1.0
    seconds: list[float] = []
    while len(seconds) < min(repeats, allowed):
        started = time.perf_counter()
        ctx.comm.exchange(received[len(seconds)], tensor, peer)
        seconds.append(round(time.perf_counter() - started, 7))
        if len(seconds) == 1 < repeats:
            element.fill_(seconds[0])
            ctx.comm.exchange(answer, element, peer)
            allowed = exchanges_within(max(element.item(), answer.item()))
    for out in received[: len(seconds)]:
        test.compare("send_recv", "send_recv", -1, out, expected, 0, peer)
    return seconds


def exchanges_within(seconds: float) -> float:
    """How many exchanges that take so long are made at most."""
    return max(min(FEWEST_AGAIN, PAIR_SECONDS / max(seconds, 1e-6)), MORE_SECONDS / max(seconds, 1e-6))


@lru_cache(maxsize=1)
def pair_test(ctx: RankContext) -> CollectiveTest:
    """What compares all exchanges of this rank, and limits how many wrong ones it reports."""
    return CollectiveTest(ctx, ctx.comm.world)


def payload(ctx: RankContext, rank: int, nbytes: int) -> torch.Tensor:
    """What a rank sends in an exchange of this size: every element is another one than any other rank's."""
    return random_numbers(ctx.plan["seed"], max(1, nbytes // 4)) + rank


@lru_cache(maxsize=2)
def random_numbers(seed: int, count: int) -> torch.Tensor:
    """The same on every rank. All bytes of an element vary, and a rank can be added."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1 << 30, (count,), generator=generator, dtype=torch.int32)


def message_bytes(
    ctx: RankContext, schedule: Sequence[Sequence[tuple[int, int]]], ranks: Sequence[int], allowed: float
) -> int:
    """Bytes of a message that the slowest of the first two rounds' pairs can exchange in all rounds, on every rank.

    ``allowed``: seconds of one exchange in each round.

    Agreed upon through the store: a collective that is wrong must not part the ranks.
    """
    slowest = 0.0
    for pairs in schedule[:2]:
        for pair in pairs:
            if ctx.rank in pair:
                peer = pair[0] if ctx.rank == pair[1] else pair[1]
                slowest = max(slowest, *time_exchanges(ctx, peer, SAMPLE_BYTES, 1))
    slowest = ctx.comm.agree(max(map(float, ctx.comm.collect(repr(slowest), ranks)), default=slowest))
    nbytes = min(1 << 20, ctx.plan["max_bytes"])
    while nbytes > SAMPLE_BYTES and slowest * nbytes / SAMPLE_BYTES * len(schedule) > allowed:
        nbytes //= 2
    return nbytes


def measure_pair(
    ctx: RankContext, pair: tuple[int, int], round_number: int, nbytes: int, attempt: int = 0, control: bool = False
) -> list[float]:
    """This rank's exchanges with the other rank of the pair. ``attempt``: from 1 on with no other pair at work.

    ``control``: of a pair that is not suspected, between two that are.
    """
    peer = pair[0] if ctx.rank == pair[1] else pair[1]
    seconds = time_exchanges(ctx, peer, nbytes, MOST_AGAIN if attempt else FIRST_EXCHANGES)
    ctx.emit(
        "pair",
        peer=peer,
        round=round_number,
        bytes=nbytes,
        seconds=seconds,
        confirm=attempt > 0,
        control=control,
        attempt=attempt,
        after=ctx.soaked_seconds,
    )
    return seconds


def slow_pairs(
    schedule: Sequence[Sequence[tuple[int, int]]], times: Mapping[int, Sequence[float]], allowed: float = math.inf
) -> list[tuple[tuple[int, int], int]]:
    """Pairs that took far longer than most, or that a slow rank has; slowest first, with their round.

    ``times``: of each rank, by round. ``allowed``: seconds that exchanging again, one pair after the other, may take;
    the slowest pair in any case.
    """
    seconds_of_pair = {}
    for round_number, pairs in enumerate(schedule):
        for low, high in pairs:
            seconds_of_pair[low, high] = (max(times[low][round_number], times[high][round_number]), round_number)
    ordered = sorted(seconds_of_pair.values())
    usual = ordered[int(len(ordered) * 0.35)][0] if ordered else 0.0
    of_slow_ends = pairs_of_slow_ends({pair: seconds for pair, (seconds, _) in seconds_of_pair.items()})
    over = [
        (seconds, round_number, pair)
        for pair, (seconds, round_number) in seconds_of_pair.items()
        if seconds > SLOW_FACTOR * usual or pair in of_slow_ends
    ]
    slow = sorted(over, reverse=True)
    spent = list(
        itertools.accumulate(seconds * max(1.0, min(MOST_AGAIN, exchanges_within(seconds))) for seconds, *_ in slow)
    )
    return [
        (pair, round_number)
        for number, (_, round_number, pair) in enumerate(slow[:MAX_SLOW_PAIRS])
        if number == 0 or spent[number] <= allowed
    ]


def pairs_of_slow_ends(seconds_of_pair: Mapping[tuple[int, int], float]) -> set[tuple[int, int]]:
    """Pairs that took longer, even by little, than most pairs of the others, where nearly all of a rank's did."""
    by_end: dict[int, list[tuple[int, int]]] = {}
    for pair in seconds_of_pair:
        for end in pair:
            by_end.setdefault(end, []).append(pair)
    ordered, slow = sorted(seconds_of_pair.values()), set()
    for end, pairs in by_end.items():
        mine = [seconds_of_pair[pair] for pair in pairs]
        if not 1 < len(mine) < len(ordered):
            continue
        # The middle of the others is not below this; few ranks go on to where it is looked for among all pairs.
        if not nearly_all_above(SLOW_END_FACTOR * ordered[(len(ordered) - len(mine) - 1) // 2], mine):
            continue
        limit = SLOW_END_FACTOR * middle(seconds for pair, seconds in seconds_of_pair.items() if end not in pair)
        if nearly_all_above(limit, mine):
            slow |= {pair for pair in pairs if seconds_of_pair[pair] > limit}
    return slow


def stage_pairs(ctx: RankContext) -> None:
    """The exchanges; where one brought wrong values, a second round in halves of the world."""
    if has_links(ctx):
        measure_pairs(ctx)
        run_second_round(ctx)


def has_links(ctx: RankContext) -> bool:
    """Whether there is a link between the ranks that are paired: none between CPUs of one host."""
    return ctx.device.type != "cpu" or len(set(ctx.hosts)) > 1


def measure_pairs(ctx: RankContext, allowed: float = math.inf) -> None:
    """Pairs exchange a message, all pairs of a round at once; then the slow ones again, each alone, beside others.

    ``allowed``: seconds that one exchange in each round may take; of slow ones the messages are smaller.
    """
    ranks = paired_ranks(ctx)
    rounds = round_robin(len(ranks), ctx.plan["seed"])
    schedule = [
        [pair for low, high in pairs if ctx.comm.can_form(pair := (ranks[low], ranks[high]))] for pairs in rounds
    ]
    nbytes = message_bytes(ctx, schedule, ranks, min(allowed, ctx.plan["budget"] / CONFIRMATION_SHARE))
    fastest = [0.0] * len(schedule)
    for round_number, pairs in enumerate(schedule):
        for pair in pairs:
            if ctx.rank in pair:
                fastest[round_number] = min(measure_pair(ctx, pair, round_number, nbytes))
    answers = map(json.loads, ctx.comm.collect(json.dumps(fastest), ranks))
    times = dict(zip(ranks, answers))
    again = slow_pairs(schedule, times, ctx.plan["budget"] / CONFIRMATION_SHARE) if len(times) == len(ranks) else []
    suspected = pairs_of_json(json.loads(ctx.comm.share(json.dumps(again))))
    normal = [
        (pair, number) for number, pairs in enumerate(schedule) for pair in pairs if (pair, number) not in suspected
    ]
    began = time.perf_counter()
    for attempt in range(1, len(CONFIRM_AT) + 1):
        if not suspected:
            return
        quickest = confirm_pairs(ctx, suspected, normal, nbytes, attempt)
        by_rank = [json.loads(text) for text in ctx.comm.collect(json.dumps(quickest), ranks)]
        again = still_slow(suspected, by_rank) if len(by_rank) == len(ranks) else []
        spent = time.perf_counter() - began
        pause = pause_before(attempt, spent, ctx.plan["budget"] / CONFIRMATION_SHARE)
        again, pause = json.loads(
            ctx.comm.share(json.dumps([again, pause] if again and pause is not None else [[], 0]))
        )
        suspected = pairs_of_json(again)
        time.sleep(pause)


def pairs_of_json(shared: Sequence[Sequence[Any]]) -> list[tuple[tuple[int, int], int]]:
    """Pairs with their rounds, as they were before JSON made lists of them."""
    return [((low, high), round_number) for (low, high), round_number in shared]


def confirm_pairs(
    ctx: RankContext,
    suspected: Sequence[tuple[tuple[int, int], int]],
    normal: Sequence[tuple[tuple[int, int], int]],
    nbytes: int,
    attempt: int,
) -> list[list[float]]:
    """Each suspected pair alone, by turns with pairs that are not: what disturbs the hosts now disturbs both.

    This rank's quickest exchange of each turn, of the suspected pair and of the other one; 0.0 where it took no part.
    """
    quickest = []
    for turn, (pair, round_number) in enumerate(suspected):
        both = [0.0, 0.0]
        if ctx.rank in pair:
            both[0] = min(measure_pair(ctx, pair, round_number, nbytes, attempt))
        ctx.comm.barrier()
        if normal:
            other, number = normal[turn % len(normal)]
            if ctx.rank in other:
                both[1] = min(measure_pair(ctx, other, number, nbytes, attempt, control=True))
            ctx.comm.barrier()
        quickest.append(both)
    return quickest


STAGE_FUNCTIONS["pairs"] = stage_pairs

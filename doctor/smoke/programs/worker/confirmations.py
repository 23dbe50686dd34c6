"""Measuring again, at times that are apart, what looks slow: another program that keeps a host busy is soon over."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from doctor.smoke.programs.worker.context import RankContext

CONFIRM_AT = (0.0, 0.6, 1.8)
"""Seconds after the first confirmation at which what is still slow is measured once more: another program that keeps a
host busy for half a second is neither a slow host nor a slow link, and makes no slow rank."""
CONFIRMATION_SHARE = 12
"""The confirmations of a stage may take the run's budget divided by this, and so may the rounds of the pairs."""
LOOKS_SLOW = 1.1
"""Times the median rank's time for the same work on the same model, from which on it is measured again: the limit of
the checks, which report what is over it in all measurements together."""
STILL_SLOW = 1.1
"""Times what pairs that are not suspected take at the same time; a pair below it is not measured once more."""
NEARLY_ALL = 0.75
"""Share of a rank's measurements that must look slow."""
FEWEST_TIMES = 12
"""Of one rank's work, without which nothing is said of it."""


def middle(numbers: Iterable[float]) -> float:
    """The median, the lower one of two; 0.0 of nothing."""
    ordered = sorted(numbers)
    return ordered[(len(ordered) - 1) // 2] if ordered else 0.0


def nearly_all_above(limit: float, numbers: Sequence[float]) -> bool:
    """Whether no more than a quarter of the numbers is within the limit."""
    return sum(number > limit for number in numbers) >= NEARLY_ALL * len(numbers)


def pause_before(attempt: int, spent: float, allowed: float) -> float | None:
    """Seconds to wait before the confirmation with this number (from 0 on); None for no further one.

    ``spent``: seconds since the first one began. None as well where another one would take more than what is
    ``allowed``. That these took long is no reason: what is slow takes long, and fewer times show less.
    """
    if attempt >= len(CONFIRM_AT):
        return None
    pause = max(0.0, CONFIRM_AT[attempt] - spent)
    return pause if spent + pause + spent / max(1, attempt) <= allowed else None


def usual_and_quick(seconds: Sequence[float]) -> tuple[float, float] | None:
    """What a piece of work usually takes, and what the quickest tenth takes at most; None of too few pieces."""
    ordered = sorted(piece for piece in seconds if piece > 0)
    if len(ordered) < FEWEST_TIMES:
        return None
    cut = len(ordered) // 5
    inner = ordered[cut : len(ordered) - cut]
    return math.exp(sum(map(math.log, inner)) / len(inner)), ordered[len(ordered) // 10]


def slow_by_work(measured: Sequence[Mapping[str, Any]], factors: Mapping[str, float]) -> dict[str, set[int]]:
    """By kind of work: the ranks whose usual and quickest times are over those of most others by this factor or more.

    ``measured``: of each rank its ``model``, which others may share, and its ``usual_and_quick`` by kind of work.
    """
    times: dict[tuple[str, str], dict[int, Sequence[float]]] = {}
    for rank, by_kind in enumerate(measured):
        for kind, usual in by_kind["usual"].items():
            if usual:
                times.setdefault((kind, by_kind["model"]), {})[rank] = usual
    slow: dict[str, set[int]] = {}
    for (kind, _), by_rank in times.items():
        if len(by_rank) < 2:
            continue
        # The middle of all the others, of two the lower: for every rank in the upper half it is this one.
        usual, quick = (sorted(pair[which] for pair in by_rank.values())[(len(by_rank) - 2) // 2] for which in (0, 1))
        times_usual, times_quick = factors[kind] * usual, factors[kind] * quick
        ranks = {rank for rank, pair in by_rank.items() if pair[0] >= times_usual and pair[1] >= times_quick}
        if ranks:
            slow.setdefault(kind, set()).update(ranks)
    return slow


def repeat_while_slow(
    ctx: RankContext,
    factors: Mapping[str, float],
    model: str,
    measure: Callable[[Sequence[str], int], Mapping[str, Sequence[float]]],
) -> None:
    """Has all ranks measure kinds of work, and those in which a rank looks slow again, until it does not.

    ``factors``: by kind, how many times the others' time looks slow; half as far, as logarithms, does once more.
    ``measure`` takes the kinds and the number of the attempt, from 0 on, and returns the seconds of each piece of work.
    What is repeated is decided by rank 0, and told through the store: all ranks measure at the same time.
    """
    kinds, suspected = list(factors), {kind: set(range(ctx.world_size)) for kind in factors}
    began = 0.0
    for attempt in range(len(CONFIRM_AT) + 1):
        usual = {kind: usual_and_quick(seconds) for kind, seconds in measure(kinds, attempt).items()}
        texts = ctx.comm.collect(json.dumps({"model": model, "usual": usual}), range(ctx.world_size))
        began = began or time.perf_counter()
        slow = slow_by_work(
            [json.loads(text) for text in texts],
            {kind: math.sqrt(factor) if attempt else factor for kind, factor in factors.items()},
        )
        suspected = {kind: still for kind, ranks in suspected.items() if (still := ranks & slow.get(kind, set()))}
        pause = pause_before(attempt, time.perf_counter() - began, ctx.plan["budget"] / CONFIRMATION_SHARE)
        repeated = list(suspected) if pause is not None and len(texts) == ctx.world_size else []
        kinds, pause = json.loads(ctx.comm.share(json.dumps([repeated, pause or 0.0])))
        if not kinds:
            return
        ctx.recorder.mark("compute")
        time.sleep(pause)


def still_slow(
    suspected: Sequence[tuple[tuple[int, int], int]], by_rank: Sequence[Sequence[Sequence[float]]]
) -> list[tuple[tuple[int, int], int]]:
    """The suspected pairs that took longer than most others at the same time; all where there is no other.

    ``by_rank``: what `confirm_pairs` returned, of each rank.
    """
    turns = range(len(suspected))
    slow, others = ([max(rank[turn][kind] for rank in by_rank) for turn in turns] for kind in (0, 1))
    usual = middle(filter(None, others))
    return [suspected[turn] for turn in turns if slow[turn] > STILL_SLOW * usual]

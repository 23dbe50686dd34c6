"""Which ranks do the same work more slowly than their peers. Pure: times in, verdicts out.

A rank is slow when its usual time lies over its peers', and so does that of its quickest pieces of work: what runs at
full speed now and then is disturbed, not slow. Both must be `SLOW` times the peers' or more, and more than the noise of
these very times makes likely, with every rank counted as a chance to be wrong.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise, zip_longest
from statistics import NormalDist, fmean, median, median_low, variance
from typing import Literal, TypeVar

import msgspec

from doctor.analysis.outliers import FALSE_ALARM_RATE

Key = TypeVar("Key")

SLOW = 1.10
"""Times the peers' pace. One that is really 15 % slower is over it but for noise; healthy ones stay below."""
MIN_CONFIDENCE = 0.9999
"""The least confidence of a verdict, over all ranks together."""
CLEARLY_SLOW, CLEARLY_SLOW_CONFIDENCE = 1.17, 1 - FALSE_ALARM_RATE
"""From so many times the peers' pace on, in both respects, less confidence will do."""
SPREAD = 4.0
"""Times the usual difference between ranks, where there are enough of them to estimate it."""
MIN_RANKS_FOR_SPREAD = 5
"""Ranks from which on the usual difference between them is known."""
MIN_BURSTS = 6
"""So many bursts, or the times are cut into `PIECES`."""
PIECES = 10
MOST_APART = 20.0
"""Of the usual times of two measurements, as logarithms; more is nonsense, and no number can hold it."""
MIN_TIMES = 12
"""Times of a rank without which nothing is said of it."""
STARVED = 2.0
"""Times what a rank waits for a CPU that it takes longer by: whoever had the CPU has emptied its caches, too."""
BUSY_SHARE, BUSY_RATIO = 0.1, 3.0
"""Of a step, for which a rank waits for a CPU, from which on only what takes so many times as long is slow."""


class Straggler(msgspec.Struct, frozen=True):
    """One rank's pace against its peers'."""

    ratio: float
    """Times the peers' time."""
    seconds: float
    peer_seconds: float
    """The peers' seconds."""
    confidence: float
    """The probability that, in a fleet of equals, chance makes no member look as slow as this one."""
    peers: int


class OwnWork(msgspec.Struct, frozen=True):
    """What one rank does in each step without the others: seconds that it waits for its input, and that it computes."""

    input: tuple[float, ...]
    compute: tuple[float, ...]
    starved: float = 0.0
    """In which it waited for a CPU, in a usual step: in this work, or while it waited for the others."""

    @property
    def seconds(self) -> list[float]:
        """Of both together, by step; what has no input has none to wait for."""
        return [wait + work for wait, work in zip_longest(self.input, self.compute, fillvalue=0.0)]


class _Pace(msgspec.Struct, frozen=True):
    """One rank's times, as logarithms."""

    usual: float
    """The mean without the fifth at either end: neither a spike nor a lucky moment counts."""
    quick: float
    """What the quickest tenth takes at most."""
    error: float
    """Variance of ``usual``, from how much the times differ, or the bursts if they differ more."""


def find_stragglers(bursts: Mapping[Key, Sequence[Sequence[float]]], least: float = SLOW) -> dict[Key, Straggler]:
    """The slow ones of ranks that do the same work, by their times in bursts; the slowest first.

    ``least``: times the peers' pace from which on a rank is slow. Ranks with fewer than `MIN_TIMES` times are left out.
    Half of the ranks may be slow, and never more: where most take longer than the rest, the rest is quick.
    """
    paces = {key: pace for key, rank_bursts in bursts.items() if (pace := _pace(rank_bursts))}
    if len(paces) < 2:
        return {}
    slow = _slower_than_median(paces, least, upper=False)
    return slow if 2 * len(slow) <= len(paces) else _slower_than_median(paces, least, upper=True)


def find_confirmed_stragglers(
    measurements: Sequence[Mapping[Key, Sequence[float]]], least: float = SLOW
) -> dict[Key, Straggler]:
    """The slow ones of ranks that did the same work at several times, the slowest first; one time alone names no rank.

    All measurements together have to show it, and each of them at least half of it, as logarithms: what another program
    slows for a moment is slow in some of them only. What slows all ranks for a moment is taken out of each.

    >>> list(find_confirmed_stragglers([{0: [1.0] * 20, 1: [1.3] * 20}] * 2))
    [1]
    >>> find_confirmed_stragglers([{0: [1.0] * 20, 1: [1.3] * 20}, {0: [1.0] * 20, 1: [1.0] * 20}])
    {}
    """
    paces = [{key: pace for key, times in ranks.items() if (pace := _pace([times]))} for ranks in measurements]
    compared = [(times, pace) for times, pace in zip(measurements, paces, strict=True) if len(pace) > 1]
    if len(compared) < 2:
        return {}
    levels = [median([pace.usual for pace in ranks.values()]) for _, ranks in compared]
    usual_level = fmean(levels)
    bursts: dict[Key, list[list[float]]] = {}
    for (times, ranks), level in zip(compared, levels, strict=True):
        factor = math.exp(max(-MOST_APART, min(usual_level - level, MOST_APART)))
        for key in ranks:
            bursts.setdefault(key, []).append([time * factor for time in times[key]])
    slow = find_stragglers(bursts, least)
    for _, ranks in compared:
        usual = _above_median({key: pace.usual for key, pace in ranks.items()}, upper=False)
        quick = _above_median({key: pace.quick for key, pace in ranks.items()}, upper=False)
        for key in usual:
            if min(usual[key], quick[key]) < math.log(least) / 2:
                slow.pop(key, None)
    return {key: straggler for key, straggler in slow.items() if len(bursts[key]) > 1}


WorkPart = Literal["input", "compute"]


def stragglers_by_part(work: Mapping[Key, OwnWork]) -> dict[WorkPart, dict[Key, Straggler]]:
    """The ranks whose own work takes longer, the slowest first, each under the part that makes it so.

    The seconds of each are those of that part: it makes up half or more of what the rank takes longer than its peers.
    What it waits for a CPU, which is its host's, must not explain that: of two ranks on a busy host one waits more.

    >>> late = stragglers_by_part({0: OwnWork((0.1,) * 12, (0.5,) * 12), 1: OwnWork((0.4,) * 12, (0.5,) * 12)})
    >>> [*late["input"]], [*late["compute"]], late["input"][1].peer_seconds
    ([1], [], 0.1)
    """
    parts: dict[WorkPart, dict[Key, Straggler]] = {"input": {}, "compute": {}}
    slow = {
        key: late
        for key, late in find_stragglers({key: [steps.seconds] for key, steps in work.items()}).items()
        if late.seconds - STARVED * work[key].starved >= SLOW * late.peer_seconds
    }
    longest = max((median(steps.seconds or [0.0]) for steps in work.values()), default=0.0)
    if any(steps.starved > BUSY_SHARE * longest for steps in work.values()):
        slow = {
            key: late
            for key, late in slow.items()
            if late.seconds - work[key].starved >= BUSY_RATIO * late.peer_seconds
        }
    others = [steps for key, steps in work.items() if key not in slow]
    for key, straggler in slow.items():
        usual = {part: median(median(getattr(steps, part) or (0.0,)) for steps in others) for part in parts}
        now = {part: median(getattr(work[key], part) or (0.0,)) for part in parts}
        part: WorkPart = "input" if now["input"] - usual["input"] > now["compute"] - usual["compute"] else "compute"
        parts[part][key] = msgspec.structs.replace(straggler, seconds=now[part], peer_seconds=usual[part])
    return parts


def by_attempt(times: Mapping[Key, Mapping[int, Sequence[float]]]) -> list[dict[Key, Sequence[float]]]:
    """The times of each rank, by number of the measurement, as those of all ranks in each of them, in order."""
    numbers = sorted({number for attempts in times.values() for number in attempts})
    return [{key: attempts[number] for key, attempts in times.items() if number in attempts} for number in numbers]


def _slower_than_median(paces: Mapping[Key, _Pace], least: float, *, upper: bool) -> dict[Key, Straggler]:
    """``upper``: of two middle ranks among the others, the slower one counts."""
    usual = _above_median({key: pace.usual for key, pace in paces.items()}, upper)
    quick = _above_median({key: pace.quick for key, pace in paces.items()}, upper)
    others = 2 if len(paces) == 2 else 1 + 1.57 / (len(paces) - 1)
    error = math.sqrt(others * median([pace.error for pace in paces.values()]))
    spread = _spread([pace.usual for pace in paces.values()]) if len(paces) >= MIN_RANKS_FOR_SPREAD else 0.0
    slow = {}
    for key, more in usual.items():
        sure, both = _confidence(more, error, len(paces)), min(more, quick[key])
        enough = CLEARLY_SLOW_CONFIDENCE if both >= math.log(CLEARLY_SLOW) else MIN_CONFIDENCE
        if both >= math.log(least) and more >= SPREAD * spread and sure >= enough:
            seconds, ratio = math.exp(paces[key].usual), math.exp(more)
            slow[key] = Straggler(ratio, seconds, seconds / ratio, sure, len(paces) - 1)
    return dict(sorted(slow.items(), key=lambda item: -item[1].ratio))


def _pace(bursts: Sequence[Sequence[float]]) -> _Pace | None:
    """None when there are too few times to say anything."""
    logs = [[math.log(time) for time in burst if math.isfinite(time) and time > 0] for burst in bursts]
    times = [time for burst in logs for time in burst]
    if len(times) < MIN_TIMES:
        return None
    pieces = [burst for burst in logs if burst]
    if len(pieces) < MIN_BURSTS:
        edges = [len(times) * number // PIECES for number in range(PIECES + 1)]
        pieces = [times[first:last] for first, last in pairwise(edges)]
    ordered, cut = sorted(times), len(times) // 5
    return _Pace(fmean(ordered[cut : len(times) - cut]), ordered[len(times) // 10], _error(times, pieces))


def _error(times: Sequence[float], pieces: Sequence[Sequence[float]]) -> float:
    """The variance of the trimmed mean (Tukey and McLaughlin).

    A disturbance may last for a whole piece, so that its times count as one.
    """
    ordered, cut = sorted(times), len(times) // 5
    low, high, share = ordered[cut], ordered[-1 - cut], 1 - 2 * cut / len(times)
    means = [fmean([min(max(time, low), high) for time in piece]) for piece in pieces]
    single = [min(max(time, low), high) for time in times]
    return max(variance(single) / len(single), variance(means) / len(means)) / share**2


def _above_median(values: Mapping[Key, float], upper: bool) -> dict[Key, float]:
    """What each lies over the middle one of all others; of two middle ones the lower, or the upper."""
    ordered = sorted(values.values())
    middle = (len(ordered) - 1) // 2 if upper else (len(ordered) - 2) // 2
    return {key: value - ordered[middle + (bisect_left(ordered, value) <= middle)] for key, value in values.items()}


def _spread(values: Sequence[float]) -> float:
    """How much those that are alike differ, be it no more than half of them."""
    middle = median_low(values)
    return 1.4826 * median_low([abs(value - middle) for value in values])


def _confidence(more: float, error: float, ranks: int) -> float:
    """Against a normal deviate, with Bonferroni's correction for all ranks."""
    if not error:
        return 1.0 if more > 0 else 0.0
    return max(0.0, 1 - ranks * (1 - NormalDist().cdf(more / error)))

"""Which ends, and which links between two ends, exchange data more slowly than the others do. Pure.

No vendor's table is asked: the pairs are measured against each other. An end is slow when its exchanges with nearly all
its partners are, and the exchanges of the others among themselves are not. What stays slow when the slow ends are set
aside, and is slow again when it is measured alone, is a slow link. With two ends there is one pair, and nothing to
measure it against.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median, median_low, pstdev

import msgspec

Pair = tuple[int, int]
"""Two ranks, the lower one first."""

SLOW_END = 1.15
"""Times what the pairs of the others take; more where few pairs or great noise make chance likely."""
SLOW_LINK = 1.5
SURE_END, SURE_LINK, SURE_AGAIN = 5.0, 6.0, 3.0
"""Standard deviations of chance that a verdict lies above: of an end, of a link, of a link's second measurement."""
CLEAR_LINK = 6.0
"""Times the slowest pair that nobody suspects, by its quickest exchange with nobody else at work: clear on a busy host,
too, where pairs vary by more than any link does."""
NEARLY_ALL = 0.75
LEAST, MOST = 1e-9, 1e6
"""Seconds that an exchange can take; what else a rank tells is none."""
LEAST_NOISE = 0.04
"""Pairs that are alike differ by so much, whatever their repeats say."""


class Exchange(msgspec.Struct, frozen=True):
    """The times of one pair, both ways at once."""

    pair: Pair
    seconds: tuple[float, ...]
    confirm: bool = False
    """Measured again, with no other pair at work."""


class Measured(msgspec.Struct, frozen=True):
    """One slow end or link, against the others."""

    ends: tuple[int, ...]
    """One end, or the two of a link."""
    ratio: float
    seconds: float
    norm: float
    """Seconds that pairs of the others take."""
    sigmas: float
    """How far above chance."""
    slow: int
    """Pairs of it that are slow."""
    tried: int


class Links(msgspec.Struct, frozen=True):
    """What the pairs tell."""

    ends: tuple[Measured, ...] = ()
    links: tuple[Measured, ...] = ()


class _Table:
    """Logarithms of each pair's time, first and second measurement, and how exact they are."""

    def __init__(self, exchanges: Iterable[Exchange]) -> None:
        first: dict[Pair, list[float]] = {}
        again: dict[Pair, list[float]] = {}
        for one in exchanges:
            low, high = sorted(one.pair)
            # The first exchange of several touches fresh memory and wakes the connection.
            warm = one.seconds[1:] if len(one.seconds) > 2 else one.seconds
            logs = [math.log(time) for time in warm if LEAST <= time <= MOST]
            (again if one.confirm else first).setdefault((low, high), []).extend(logs)
        self.first = {pair: _quick(logs) for pair, logs in first.items() if logs}
        self.again = {pair: _quick(logs) for pair, logs in again.items() if logs and pair in self.first}
        self.alone = {pair: min(again[pair]) for pair in self.again if len(again[pair]) >= 6}
        # Both ends time the same exchange: half of the numbers are new.
        counts = [max(1.0, len(first[pair]) / 2) for pair in self.first]
        own = fmean([pstdev(first[pair]) for pair in self.first]) if self.first else 0.0
        self.noise = max(LEAST_NOISE, 1.36 * own / math.sqrt(median(counts)) if counts else 0.0)
        # Of few pairs not even the noise is well known.
        self.noise *= 1 + 1 / max(1, len(counts))

    def without(self, ends: Iterable[int]) -> dict[Pair, float]:
        gone = set(ends)
        return {pair: time for pair, time in self.first.items() if not gone & set(pair)}


def compare(exchanges: Iterable[Exchange]) -> Links:
    """The slow ends and links among pairs that are alike by construction."""
    table = _Table(exchanges)
    ends: list[Measured] = []
    while worst := _worst_end(table, table.without(end for one in ends for end in one.ends)):
        ends.append(worst)
    links = _slow_links(table, table.without(end for one in ends for end in one.ends))
    return Links(tuple(sorted(ends, key=_by_ratio)), tuple(sorted(links, key=_by_ratio)))


def _by_ratio(one: Measured) -> float:
    return -one.ratio


def _worst_end(table: _Table, times: Mapping[Pair, float]) -> Measured | None:
    """The end that stands out most, by standard deviations; None when nobody stands out enough."""
    own: dict[int, list[Pair]] = {}
    for pair in times:
        for end in pair:
            own.setdefault(end, []).append(pair)
    found = [one for end, pairs in own.items() if (one := _slow_end(table, times, end, pairs))]
    return max(found, key=lambda one: (one.sigmas, one.ratio), default=None)


def _slow_end(table: _Table, times: Mapping[Pair, float], end: int, pairs: Sequence[Pair]) -> Measured | None:
    others = [time for pair, time in times.items() if end not in pair]
    mine = [times[pair] for pair in pairs]
    if len(mine) < 2 or not others:
        return None
    usual, norm = median_low(mine), median_low(others)
    more = usual - norm
    noise = _between(table.noise, [time - usual for time in mine], [time - norm for time in others])
    chance = 1.25 * noise * math.sqrt(1 / len(mine) + 1 / len(others))
    slow = sum(time > norm + more / 2 for time in mine)
    if more < max(math.log(SLOW_END), SURE_END * chance) or slow < NEARLY_ALL * len(mine):
        return None
    again = [table.again[pair] for pair in pairs if pair in table.again]
    if again and median(again) < norm + more / 2:
        return None
    return Measured((end,), math.exp(more), math.exp(usual), math.exp(norm), more / chance, slow, len(mine))


def _slow_links(table: _Table, times: Mapping[Pair, float]) -> list[Measured]:
    """Pairs far above the middle one. Of two pairs nobody can tell which is as it should be."""
    if len(times) < 3:
        return []
    norm = median_low(times.values())
    noise = _between(table.noise, [time - norm for time in times.values()])
    unsuspected = [time for pair, time in times.items() if pair not in table.again]
    found = []
    for pair, time in times.items():
        if pair not in table.again:
            continue
        more = min(time, table.again[pair]) - norm
        sure = time - norm >= SURE_LINK * noise and more >= SURE_AGAIN * noise
        clear = len(unsuspected) > 1 and table.alone.get(pair, norm) - max(unsuspected) >= math.log(CLEAR_LINK)
        if more >= math.log(SLOW_LINK) and (sure or clear):
            found.append(Measured(pair, math.exp(more), math.exp(norm + more), math.exp(norm), more / noise, 1, 1))
    return found


def _between(least: float, *groups: Sequence[float]) -> float:
    """How much pairs that are alike differ: robust against the few that are not, and never less than `least`."""
    return max(least, 1.4826 * median([abs(rest) for group in groups for rest in group]))


def _quick(logs: Sequence[float]) -> float:
    """The lower quartile: a disturbance makes an exchange slower, never quicker."""
    return sorted(logs)[(len(logs) - 1) // 4]

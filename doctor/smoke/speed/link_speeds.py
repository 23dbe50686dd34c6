"""The exchanges of pairs of ranks, as measurements of paths without a direction: slow ends and links. Pure.

With two ends there is one pair, and nothing to measure it against.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from statistics import fmean, median, pstdev

import msgspec

from doctor.analysis.outliers.pairs import MIN_NOISE, PathJudge, PathOutlier, PathTime

Pair = tuple[int, int]
"""Two ranks, the lower one first."""

MIN_SECONDS, MAX_SECONDS = 1e-9, 1e6
"""Seconds that an exchange can take; other values are none."""
DISTURBED = 0.001
"""The share of measurements of which a disturbance slows all exchanges."""


class Exchange(msgspec.Struct, frozen=True):
    """The times of one pair, both directions at once."""

    pair: Pair
    seconds: tuple[float, ...]
    confirm: bool = False
    """Measured again, with no other pair at work."""
    control: bool = False
    """Of a pair that is not suspected, measured by turns with those that are."""
    attempt: int = 0
    """Number of the confirmation that it belongs to: they are some time apart."""
    turn: int = 0
    """Of a control, which may be measured several times in one confirmation: how many the same end measured before."""


def compare_pairs(exchanges: Iterable[Exchange]) -> tuple[PathOutlier, ...]:
    """The slow ends (kind ``host``), then the slow links, among pairs that are alike by construction."""
    measured: dict[tuple[Pair, int, bool, int], list[tuple[float, ...]]] = {}
    for exchange in exchanges:
        low, high = sorted(exchange.pair)
        number = exchange.attempt + 1 if exchange.confirm or exchange.control else 0
        key = ((low, high), number, exchange.control, exchange.turn)
        measured.setdefault(key, []).append(exchange.seconds)
    logs_of = {key: logs for key, ends in measured.items() if (logs := usable_logs(ends))}
    times = [PathTime(key[0], lower_quartile(logs), min(logs), key[1], key[2]) for key, logs in logs_of.items()]
    first = [logs for key, logs in logs_of.items() if not key[1]]
    return PathJudge(times, directed=False, noise=_noise(first), disturbed=DISTURBED).outliers()[0]


def _noise(first: Sequence[Sequence[float]]) -> tuple[float, int]:
    """What the lower quartile of a pair's exchanges varies by, and from how many repeats that is known."""
    if not first:
        return MIN_NOISE, 0
    counts = [len(logs) for logs in first]
    spread = 1.36 * fmean([pstdev(logs) for logs in first]) / math.sqrt(median(counts))
    # Of few pairs not even the noise is well known.
    return max(MIN_NOISE, spread) * (1 + 1 / len(counts)), sum(counts) - len(counts)


def usable_logs(ends: Sequence[Sequence[float]]) -> list[float]:
    """Logarithms of the seconds that each end of a pair measured; values that no exchange can take are left out.

    An exchange lasts until its later end is done: on a slow link the other one is done when its own message lies in a
    buffer of the kernel, which holds several. The first exchange of several touches fresh memory and wakes the
    connection.
    """
    later = [max(filter(_is_possible, both), default=0.0) for both in zip_longest(*ends, fillvalue=0.0)]
    return [math.log(time) for time in (later[1:] if len(later) > 2 else later) if time]


def _is_possible(seconds: float) -> bool:
    return MIN_SECONDS <= seconds <= MAX_SECONDS


def lower_quartile(numbers: Sequence[float]) -> float:
    """The lower quartile of numbers: a disturbance makes an exchange slower, never quicker."""
    return sorted(numbers)[(len(numbers) - 1) // 4]

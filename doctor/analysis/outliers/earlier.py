"""A figure against what it was earlier: whether it lies below the usual range. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median

import msgspec

FEW, FEW_RATIO = 5, 1.5
"""Fewer values than so many tell nothing of how much they differ: gloo on a quiet host repeats itself to a third."""
LEAST_RATIO = 1.15
"""Times below the median, at least, from which on a figure is below the range."""


MOST_APART = 100.0
"""As logarithms; values that differ by more are nonsense, and no number can hold their range."""


class UsualRange(msgspec.Struct, frozen=True):
    """The usual range of a figure for which more is better."""

    median: float
    spread: float
    """One standard deviation, as a factor; 1.0 where it is not known."""
    lowest: float
    """What is below it is not usual."""
    count: int


def usual_range(values: Sequence[float]) -> UsualRange | None:
    """The range of positive values; None without any, or where they are nonsense. By the median
    and the mean deviation from it, as logarithms.

    >>> usual_range([100.0, 101.0, 99.0, 100.0, 102.0]).lowest > 85
    True
    >>> round(usual_range([100.0, 120.0]).lowest)
    73
    """
    logs = [math.log(value) for value in values if math.isfinite(value) and value > 0]
    if logs and max(logs) - min(logs) > MOST_APART:
        return None
    if not logs:
        return None
    middle = median(logs)
    if len(logs) < FEW:
        return UsualRange(math.exp(middle), 1.0, math.exp(middle) / FEW_RATIO, len(logs))
    mean_deviation = fmean([abs(log - middle) for log in logs])
    # Of a normal distribution the deviation from the median is 0.8 standard deviations in the mean. One bad run among
    # the values moves it less than it moves the variance.
    spread = mean_deviation * math.sqrt(math.pi / 2) * len(logs) / (len(logs) - 1)
    below = max(math.log(LEAST_RATIO), _deviations(len(logs)) * spread)
    return UsualRange(math.exp(middle), math.exp(spread), math.exp(middle - below), len(logs))


def _deviations(count: int) -> float:
    """Standard deviations below the median of so many values that one healthy value in a thousand lies at.

    As Student's distribution has it: few values do not tell well how much they differ. Compared with simulated ones.
    """
    return (3.1 + 16 / (count - 1)) * math.sqrt(1 + 1.57 / count)

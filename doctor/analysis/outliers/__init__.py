"""Which hosts, ranks, devices or links are slower than others that are alike. Pure.

`pairs` compares what two of them do together, `peers` what each does alone. Both compare logarithms with the middle of
the others. A member is named only if its quickest work is slow as well, and never by one moment alone: what looks slow
is measured again, and is slow only if each time shows at least half of it. No table says how fast anything should be.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import median, median_low

FALSE_ALARM_RATE = 0.001
"""The chance at most that a fleet in which nothing is slow is accused of anything."""


def log_chance(above: int, excess: float, scale: float, degrees: int) -> float:
    """The logarithm of the chance that so many healthy measurements all lie so far above the middle one.

    Half of the measurements lie above it; by how much is exponential, with a scale that is estimated from ``degrees``
    values: the predictive distribution has a power's tail.

    >>> math.exp(log_chance(1, 0.0, 1.0, 1)), round(math.exp(log_chance(2, 1.0, 1.0, 10**6)), 4)
    (0.5, 0.0338)
    """
    return -above * math.log(2) - degrees * math.log1p(above * excess / (degrees * scale))


def difference_of_ends(paths: Mapping[tuple[int, int], Sequence[float]], host: int, scale: float) -> float:
    """How much other hosts that are alike differ, beside what the noise of their paths makes likely.

    The median deviation of their middle values, as a standard deviation.
    """
    by_end: dict[int, list[float]] = {}
    for path, logs in paths.items():
        for end in path:
            by_end.setdefault(end, []).extend(logs)
    by_end.pop(host, None)
    middles = [median_low(logs) for logs in by_end.values()]
    level = median_low(middles)
    difference = 1.4826 * median_low(abs(middle - level) for middle in middles)
    by_noise = 2 * scale / math.sqrt(median(map(len, by_end.values())))
    return math.sqrt(max(0.0, difference**2 - by_noise**2))

"""Which hosts, ranks, devices or links are slower than others that are alike. Pure.

`pairs` compares what two of them do together, `peers` what each does alone. Both compare logarithms with the middle of
the others. A member is named only if its quickest work is slow as well, and never by one moment alone: what looks slow
is measured again, and is slow only if each time shows at least half of it. No table says how fast anything should be.
"""

import math

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

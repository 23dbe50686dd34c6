"""Ranks that the CPU quotas of their control groups hold back more than others. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median_low

from doctor.smoke.model import QuotaUse

HELD_BACK = 0.5
"""Share of the periods of its quota from which on a rank is held back: in most of its time it runs, and then waits."""
LOST = 0.3
"""Share of the time in which it could have run from which on a quota holds a rank back: a rank that mostly waits for
others uses up few periods, and loses them to all."""
MOST_OF_PEERS = 0.5
"""Of that share, what the median rank may have at most: where all are held back, nobody is slow."""


def held_back_ranks(quotas: Mapping[int, QuotaUse]) -> dict[int, float]:
    """The ranks whose quota was used up far more often than that of the median rank, whose share it gives.

    Never more than half of the ranks.

    >>> used_up, free = QuotaUse(40, 38, 3.0), QuotaUse()
    >>> held_back_ranks({0: free, 1: used_up, 2: free})
    {1: 0.0}
    >>> held_back_ranks({0: used_up, 1: used_up})
    {}
    """
    if len(quotas) < 2:
        return {}
    usual = median_low(quota.share for quota in quotas.values())
    lost = median_low(quota.lost for quota in quotas.values())
    held = [
        rank
        for rank, quota in quotas.items()
        if (quota.share >= HELD_BACK and usual <= MOST_OF_PEERS * quota.share)
        or (quota.lost >= LOST and lost <= MOST_OF_PEERS * quota.lost)
    ]
    return dict.fromkeys(held, usual) if 2 * len(held) <= len(quotas) else {}

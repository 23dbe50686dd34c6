"""Ranks in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from doctor.engine.sanitize import number_ranges


def rank_names(ranks: Sequence[int]) -> str:
    """Ranks in words, with neighbours as ranges.

    >>> rank_names([3]), rank_names([0, 1, 2, 5])
    ('rank 3', 'ranks 0-2, 5')
    """
    return f"rank{'s' * (len(set(ranks)) > 1)} {number_ranges(ranks, ', ')}"

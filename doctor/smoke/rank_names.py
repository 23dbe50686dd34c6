"""Ranks in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def rank_names(ranks: Sequence[int]) -> str:
    """Ranks in words, with neighbours as ranges.

    >>> rank_names([3]), rank_names([0, 1, 2, 5])
    ('rank 3', 'ranks 0-2, 5')
    """
    spans: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    text = ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in spans)
    return f"rank{'s' * (len(set(ranks)) > 1)} {text}"

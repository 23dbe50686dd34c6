"""The smoke run's exchanges of two ranks as a picture for a terminal: a row and a column for each rank. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median_low

from doctor.engine.language import localized, phrase
from doctor.engine.smoke_summary import PairSpeed
from doctor.report.layout.formatting import byte_rate, size

MOST_ROWS = 32
"""Of more ranks, neighbours share a row, which shows the slowest of their pairs."""
SIGNS = ((1.5, "."), (2.0, "-"), (4.0, "+"), (float("inf"), "#"))
"""Below so many times the median time: its sign."""


def pair_grid(pairs: Sequence[PairSpeed]) -> list[str]:
    r"""Lines; none for fewer than three ranks.

    >>> times = {(0, 1): 1.0, (0, 2): 1.1, (1, 2): 1.0, (0, 3): 9.0, (1, 3): 9.0, (2, 3): 2.6}
    >>> for line in pair_grid([PairSpeed(*pair, 1 << 20, seconds) for pair, seconds in times.items()])[1:5]:
    ...     print(line)
    0 \..#
    1 .\.#
    2 ..\+
    3 ##+\
    """
    largest = max((pair.bytes for pair in pairs), default=0)
    times = {(pair.low, pair.high): pair.seconds for pair in pairs if pair.bytes == largest and pair.seconds > 0}
    ranks = sorted({rank for pair in times for rank in pair})
    if len(ranks) < 3:
        return []
    usual = median_low(times.values())
    share = -(-len(ranks) // MOST_ROWS)
    blocks = [ranks[start : start + share] for start in range(0, len(ranks), share)]
    labels = [f"{block[0]}-{block[-1]}" if len(block) > 1 else f"{block[0]}" for block in blocks]
    row_of = {rank: number for number, block in enumerate(blocks) for rank in block}
    worst: dict[tuple[int, int], float] = {}
    for (low, high), seconds in times.items():
        cell = (row_of[low], row_of[high])
        worst[cell] = max(worst.get(cell, 0.0), seconds / usual)
    width = max(map(len, labels))
    head = phrase(
        "exchanges of {size} by rank, median {rate} each way:", size=size(largest), rate=byte_rate(largest / usual)
    )
    rows = [f"{label:>{width}} {_row(number, len(blocks), worst)}" for number, label in enumerate(labels)]
    return [head, *rows, localized(". below 1.5 times the median time, - below 2, + below 4, # from 4 on")]


def _row(row: int, count: int, worst: Mapping[tuple[int, int], float]) -> str:
    return "".join(_sign(row, column, worst) for column in range(count))


def _sign(row: int, column: int, worst: Mapping[tuple[int, int], float]) -> str:
    """Of a cell; a space where no pair of it was measured."""
    ratio = worst.get((min(row, column), max(row, column)))
    if ratio is None:
        return "\\" if row == column else " "
    return next(sign for limit, sign in SIGNS if ratio < limit or limit == float("inf"))

"""A curve in one line of a terminal."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from doctor.engine.output_encoding import PLAIN_SIGNS

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII = "_.-=+*#@"
ELLIPSIS = "…"
_TO_ASCII = str.maketrans({sign: PLAIN_SIGNS[sign] for sign in (*BLOCKS, ELLIPSIS)})


def sparkline(values: Sequence[float | None], width: int = 60, *, unicode: bool = True) -> str:
    """The values as bars from the lowest to the highest; ``x`` stands for one that is not finite, or None.

    >>> sparkline([3.0, 2.0, 1.0, 1.0], unicode=False)
    '@=__'
    """
    marks = BLOCKS if unicode else ASCII
    columns = _columns([math.nan if value is None else value for value in values], width)
    finite = [value for value in columns if math.isfinite(value)]
    if not finite:
        return "x" * len(columns)
    low, high = min(finite), max(finite)
    span = high - low

    def mark(value: float) -> str:
        if not math.isfinite(value):
            return "x"
        return marks[min(len(marks) - 1, int((value - low) / span * len(marks)))] if span > 0 else marks[0]

    return "".join(map(mark, columns))


def _columns(values: Sequence[float], width: int) -> list[float]:
    """At most ``width`` values, each the mean of its part; not finite where one of them is not."""
    if len(values) <= width:
        return list(values)
    bounds = [len(values) * column // width for column in range(width + 1)]
    parts = (values[start:end] for start, end in itertools.pairwise(bounds))
    return [sum(part) / len(part) for part in parts]


def without_signs(text: str) -> str:
    """A report's text for a terminal that shows ASCII alone: its bars and ellipses replaced.

    >>> without_signs("loss █▁…")
    'loss @_...'
    """
    return text.translate(_TO_ASCII)

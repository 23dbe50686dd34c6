"""Letters and numbers in few characters, as the page's script reads them. Pure."""

from __future__ import annotations

import re

_RUN = re.compile(r"(.)\1*", re.DOTALL)


def run_lengths(letters: str) -> str:
    """Each run of a letter as its length, which is left out where it is 1, and the letter.

    >>> run_lengths("pppEpp")
    '3pE2p'
    """
    return _RUN.sub(lambda run: f"{len(run[0])}{run[1]}" if len(run[0]) > 1 else run[1], letters)


def short_number(value: float, digits: int = 3) -> float | int:
    """``value`` with so many significant digits, whole where it can be.

    >>> short_number(12345.6), short_number(0.0012345), short_number(2.0)
    (12300, 0.00123, 2)
    """
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() else rounded

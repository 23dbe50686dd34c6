"""How many cells of a terminal a text takes: tables and folded lines count these, not characters. Pure."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from doctor.engine.language import is_english, output_encoding
from doctor.engine.output_encoding import encoded, is_utf8


def display_width(text: str) -> int:
    """Cells of a terminal that shows ``text``.

    A letter of ambiguous East Asian width (``×``, ``→``, quotation marks, Greek; Unicode's annex 11) counts two in a
    two-byte encoding, whose terminals draw it so, and in Chinese, where many do: no line is too long on either.
    """
    if text.isascii():
        return len(text)
    ambiguous = 1 if is_english() else 2
    return sum(_letter_cells(letter, output_encoding(), ambiguous) for letter in text)


@lru_cache(20_000)
def _letter_cells(letter: str, encoding: str, ambiguous: int) -> int:
    if unicodedata.combining(letter):
        return 0
    kind = unicodedata.east_asian_width(letter)
    if not is_utf8(encoding):
        data = encoded(letter, encoding)
        if data.isascii() or (len(data) == 2 and kind != "H"):  # a byte is a cell
            return len(data)
    return 2 if kind in "WF" else ambiguous if kind == "A" else 1


def padded(text: str, cells: int) -> str:
    """``text`` with spaces up to ``cells``."""
    return text + " " * (cells - display_width(text))

"""How text is written in the encoding of stdout, and how many cells of a terminal it takes.

Letters that the encoding lacks become plain ones, not question marks. Tables and folded lines count cells, not
characters.

A two-byte encoding of East Asia (GBK, Big5) has ``×``, ``→`` and quotation marks, and its terminals draw them as wide
as ideographs; ASCII has none of them.
"""

from __future__ import annotations

import codecs
import unicodedata
from functools import lru_cache

from doctor.engine.language import is_english, output_encoding

BLOCKS, ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.-=+*#@"
ELLIPSIS = "…"
PLAIN_SIGNS = {
    **dict(zip(BLOCKS, ASCII_BLOCKS, strict=True)),
    "…": "...",
    "“": '"',
    "”": '"',
    "‘": "'",
    "’": "'",
    "—": "--",
    "–": "-",
    "·": ".",
    "×": "x",
    "→": "->",
    "±": "+-",
    "℃": " C",
    "°": " deg ",
    "µ": "u",
    "✓": "+",
    "✗": "x",
    "≤": "<=",
    "≥": ">=",
}
"""Signs of doctor's own texts, and what stands for them where they cannot be written."""
_TO_ASCII = str.maketrans({sign: PLAIN_SIGNS[sign] for sign in (*BLOCKS, ELLIPSIS)})
_HANDLER = "doctor.plain-signs"


def _replace_letters(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start : error.end]
    signs = (PLAIN_SIGNS.get(letter) or letter.encode("ascii", "backslashreplace").decode() for letter in letters)
    return "".join(signs), error.end


codecs.register_error(_HANDLER, _replace_letters)


def encoded(text: str, encoding: str) -> bytes:
    r"""``text`` in ``encoding``; what that lacks is replaced by a plain sign, else by its escape sequence.

    Raises: LookupError for an encoding that Python does not know.

    >>> encoded("3 × 4 … ✓ é", "ascii"), len(encoded("×", "gbk"))
    (b'3 x 4 ... + \\xe9', 2)
    """
    return text.encode(encoding, _HANDLER)


@lru_cache(32)
def is_utf8(encoding: str) -> bool:
    """Whether ``encoding`` is a name of UTF-8."""
    try:
        return codecs.lookup(encoding).name == "utf-8"
    except LookupError:
        return False


def without_signs(text: str) -> str:
    """A report's text for a terminal that shows ASCII alone: its bars and ellipses replaced.

    >>> without_signs("loss █▁…")
    'loss @_...'
    """
    return text.translate(_TO_ASCII)


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

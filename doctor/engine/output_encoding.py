"""How text is written in the encoding of stdout: letters that it lacks become plain ones, not question marks.

A two-byte encoding of East Asia (GBK, Big5) has ``×``, ``→`` and quotation marks, and its terminals draw them as wide
as ideographs; ASCII has none of them.
"""

from __future__ import annotations

import codecs
from functools import lru_cache

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

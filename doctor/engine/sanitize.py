"""Words from elsewhere, made fit to show: what a host, a tool or a file says is untrusted."""

from __future__ import annotations

import re
import unicodedata

_ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-Z\\-_])")


def plain(words: str | bytes, limit: int = 200) -> str:
    """``words`` on one line, without control characters and escape sequences, at most ``limit`` characters.

    >>> plain(b"\\x1b[31mred\\x1b[0m\\r\\n  alert\\x07")
    'red alert'
    """
    if isinstance(words, bytes):
        words = words[: limit * 8].decode("utf-8", "replace")
    words = _ESCAPES.sub(" ", words[: limit * 8])
    shown = "".join(" " if unicodedata.category(letter)[0] in "CZ" else letter for letter in words).strip()
    return " ".join((shown if len(shown) <= limit else shown[: limit - 1] + "…").split())


def printable(text: str, limit: int = 200) -> str:
    """What a user typed or wrote, with what cannot be printed spelled out, at most ``limit`` characters of it."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:limit])
    return shown + "…" if len(text) > limit else shown


def count(number: int, noun: str) -> str:
    """``1 check``, ``2 checks``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"

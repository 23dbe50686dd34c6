"""Words from elsewhere, made fit to show: what a host or a tool prints is untrusted."""

from __future__ import annotations

import re
import unicodedata

from doctor.transport import Said, Trouble, Unreached

_ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-Z\\-_])")


def plain(words: str | bytes, limit: int = 200) -> str:
    """``words`` on one line, without control characters and escape sequences, at most ``limit`` characters.

    >>> plain(b"\\x1b[31mred\\x1b[0m\\r\\n  alert\\x07")
    'red alert'
    """
    if isinstance(words, bytes):
        words = words[: limit * 8].decode("utf-8", "replace")
    words = _ESCAPES.sub(" ", words[: limit * 8])
    shown = "".join(" " if unicodedata.category(letter)[0] in "CZ" else letter for letter in words)
    shown = " ".join(shown.split())
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def unreached(kind: Trouble, text: str, hint: str = "", said: Said | None = None) -> Unreached:
    """The error, its text safe to print whatever was put into it."""
    return Unreached(kind, plain(text, 400), plain(hint, 4000), said)


def seconds(span: float) -> str:
    """A span of time, short.

    >>> seconds(5.0), seconds(0.25)
    ('5 s', '0.25 s')
    """
    return f"{span:.3g} s"


def size(count: int) -> str:
    """A number of bytes, short.

    >>> size(8 << 20), size(4096), size(100)
    ('8 MiB', '4 KiB', '100 bytes')
    """
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count} bytes"

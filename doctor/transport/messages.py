"""How troubles on the way to a host are worded."""

from __future__ import annotations

from doctor.engine.sanitize import plain
from doctor.transport import Said, Trouble, Unreached


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

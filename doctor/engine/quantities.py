"""Spans of time and numbers of bytes: what people write as a number, and numbers in few characters. Pure."""

from __future__ import annotations

import re

from doctor.engine.texts import filled

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40
HOUR, DAY = 3600, 86400

_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": HOUR, "d": DAY}
_SPAN = re.compile(r"(\d{1,6}(?:\.\d{1,3})?) ?(s|min|m|h|d)", re.ASCII)
_BYTES = {"": 1, "K": KIB, "M": MIB, "G": GIB, "T": TIB}
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,3})?)\s*(?:([KMGT]?)(?:i?B)?|bytes)", re.ASCII | re.IGNORECASE)


def parse_span(text: str, bare: bool = True) -> float | None:
    """Seconds of ``90s``, ``1.5m``, ``30 min``, ``1h30m``, ``2d``, and, where ``bare``, of ``90``; else None.

    >>> parse_span("1.5m"), parse_span("1h30m"), parse_span("90"), parse_span("90", bare=False), parse_span("soon")
    (90.0, 5400.0, 90.0, None, None)
    """
    text = text.strip().lower()
    if bare and re.fullmatch(r"\d{1,6}(\.\d{1,3})?", text, re.ASCII):
        return float(text)
    parts = _SPAN.findall(text) if len(text) < 60 else []
    if not parts or _SPAN.sub("", text).strip():
        return None
    return float(sum(float(number) * _SECONDS[unit] for number, unit in parts))


def parse_time_limit(text: str) -> float | None:
    """The same of an option that takes 1 s to 24 h.

    >>> parse_time_limit("90s"), parse_time_limit("0"), parse_time_limit("25h")
    (90.0, None, None)
    """
    seconds = parse_span(text)
    return seconds if seconds is not None and 1 <= seconds <= DAY else None


def clock_seconds(text: str) -> int | None:
    """Seconds of ``45``, ``1:30``, ``1:30:00`` and ``2:12:30:00``, whose last part is seconds; else None.

    >>> clock_seconds("1:30:00"), clock_seconds("45"), clock_seconds("1:x")
    (5400, 45, None)
    """
    parts = text.split(":")
    if len(parts) > 4 or not all(re.fullmatch(r"[0-9]{1,7}", part, re.ASCII) for part in parts):
        return None
    return sum(int(part) * factor for part, factor in zip(reversed(parts), (1, 60, HOUR, DAY), strict=False))


def number_text(value: float, digits: int = 3) -> str:
    """A number in so many digits, and in all of those before the point: an exponent only where it is tiny.

    >>> number_text(2.4567), number_text(99.97, 2), number_text(3711.64), number_text(0.0016)
    ('2.46', '100', '3712', '0.0016')
    """
    return f"{value:.{digits}g}" if abs(value) < 10**digits - 0.5 else f"{value:.0f}"


def times_text(ratio: float) -> float | str:
    """How many times as long: from a hundred on the number tells nothing more.

    >>> times_text(2.456), times_text(2873.14)
    (2.46, 'over 100')
    """
    return round(ratio, 2) if ratio <= 100 else filled("over {0}", 100)


def seconds_text(seconds: float) -> str:
    """A limit or a measured time in three digits, and whole seconds from a hundred on.

    >>> seconds_text(0.000012), seconds_text(0.00183), seconds_text(0.25), seconds_text(5.0), seconds_text(1234.5)
    ('12 us', '1.83 ms', '0.25 s', '5 s', '1234 s')
    """
    if seconds < 0.0009995:
        return f"{seconds * 1e6:.3g} us"
    if seconds < 0.09995:
        return f"{seconds * 1e3:.3g} ms"
    return f"{number_text(seconds)} s"


def span_text(seconds: float) -> str:
    """How long something lasts, in the unit that shows it best.

    >>> span_text(45), span_text(5400), span_text(7300), span_text(200000)
    ('45 s', '90 min', '2 h', '2 days')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds <= 90 * 60:
        return filled("{0} min", f"{seconds / 60:.0f}")
    if seconds < 2 * DAY:
        return f"{seconds / HOUR:.0f} h"
    return filled("{0} days", f"{seconds / DAY:.0f}")


def ago_text(seconds: float) -> str:
    """How long ago something was: ``2 h ago``."""
    return filled("{0} ago", span_text(seconds))


def parse_bytes(text: str) -> int | None:
    """Bytes of ``4096``, ``4M``, ``1.5 GiB``, ``12 bytes``: powers of 1024; else None.

    >>> parse_bytes("4M"), parse_bytes("1.5 GiB"), parse_bytes("12 bytes"), parse_bytes("large")
    (4194304, 1610612736, 12, None)
    """
    match = _SIZE.fullmatch(text.strip())
    if not match:
        return None
    unit = _BYTES[(match[2] or "").upper()]
    return int(match[1]) * unit if match[1].isdecimal() else int(float(match[1]) * unit)


def bytes_text(count: int) -> str:
    """A number of bytes in three digits of a binary unit, all of those before the point.

    >>> bytes_text(64 * MIB), bytes_text(1536 * MIB), bytes_text(1023 * GIB), bytes_text(300)
    ('64 MiB', '1.5 GiB', '1023 GiB', '300 B')
    """
    for unit, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if count >= unit:
            return f"{number_text(count / unit)} {name}"
    return f"{count} B"

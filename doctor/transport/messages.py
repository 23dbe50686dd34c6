"""Messages for failures on the way to a host."""

from __future__ import annotations

from doctor.engine.sanitize import strip_control_chars
from doctor.transport import CommandResult, TransportError, TransportErrorKind


def transport_error(
    kind: TransportErrorKind, text: str, hint: str = "", partial_result: CommandResult | None = None
) -> TransportError:
    """The error, its text safe to print whatever was put into it."""
    return TransportError(kind, strip_control_chars(text, 400), strip_control_chars(hint, 4000), partial_result)


def format_seconds(span: float) -> str:
    """A span of time, short.

    >>> format_seconds(5.0), format_seconds(0.25)
    ('5 s', '0.25 s')
    """
    return f"{span:.3g} s"


def format_size(count: int) -> str:
    """A number of bytes, short.

    >>> format_size(9 << 30), format_size(8 << 20), format_size(4096), format_size(100)
    ('9 GiB', '8 MiB', '4 KiB', '100 bytes')
    """
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count} bytes"

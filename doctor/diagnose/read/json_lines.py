"""Tracebacks that stand in a field of a line of JSON, as structured logging writes them."""

from __future__ import annotations

import re

from doctor.diagnose.excerpter.tracebacks import TRACEBACK_HEAD

_FIELD = re.compile(r'(?:[^"\\]|\\.){0,4096}')
_ESCAPE = re.compile(r'\\(["\\/])')


def raised(text: str) -> str:
    r"""The exception's line of the traceback in a line of JSON; empty where it holds none.

    >>> raised(r'{"rank": 2, "exc": "Traceback (most recent call last):\n  File \"t.py\", line 3\nValueError: bad"}')
    'ValueError: bad'
    """
    if not text.startswith("{"):
        return ""
    _, head, rest = text.partition(TRACEBACK_HEAD)
    field = _FIELD.match(rest)
    if not head or not field:
        return ""
    lines = [_ESCAPE.sub(r"\1", line) for line in field.group().split("\\n")]
    return next((line for line in reversed(lines) if line.strip() and not line.startswith((" ", "\\t", ":"))), "")

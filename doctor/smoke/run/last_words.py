"""What a process printed before it ended, as parts of a report. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from doctor.engine.sanitize import strip_control_chars

TAIL_CHARS = 4000
"""Of an output that are read, from its end."""
MAX_FRAMES = 12
_FRAME = re.compile(r'  File "([^"]{1,300})", line (\d{1,7}), in (\S.{0,100})')
_TRACE_ENTRY = re.compile(r"(.{1,300}):(\d{1,7}) (.{1,100})")


def last_line(tail: str) -> str:
    """The last line that is not empty."""
    lines = [line for line in map(strip_control_chars, tail[-TAIL_CHARS:].splitlines()) if line]
    return lines[-1] if lines else ""


def traceback_stack(tail: str) -> str:
    """The last traceback in an output, innermost call first; empty where there is none."""
    _, found, body = tail[-TAIL_CHARS:].rpartition("Traceback (most recent call last):")
    frames = [_FRAME.match(line) for line in body.splitlines()] if found else []
    return _stack([match.groups() for match in frames if match][::-1])


def trace_stack(trace: Sequence[str]) -> str:
    """The same of the entries ``file:line function`` that a rank emits with its error, innermost first."""
    entries = [_TRACE_ENTRY.fullmatch(entry) for entry in trace]
    return _stack([match.groups() for match in entries if match])


def _stack(frames: Sequence[Sequence[str]]) -> str:
    lines = [f'File "{path}", line {number} in {name}' for path, number, name in frames[:MAX_FRAMES]]
    return "\n".join(strip_control_chars(line, 400) for line in lines)

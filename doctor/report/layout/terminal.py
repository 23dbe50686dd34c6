"""Capabilities of the output: terminal or not, colour, non-ASCII signs, width; and lists that fit it.

Light: quick commands load it, so it imports no library.
"""

from __future__ import annotations

import os
import sys
from collections import namedtuple

from doctor.engine.output_encoding import display_width, is_utf8

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import TextIO

MAX_WIDTH = 120
"""Longer lines are hard to read."""
MIN_ROOM = 24
"""Columns; where fewer remain for a list's last column, it goes below the others."""


def terminal_columns() -> int:
    """Columns of the terminal behind stdout, or of ``COLUMNS``, at most `MAX_WIDTH`; 0 for a file or a pipe."""
    return terminal_width(sys.stdout, os.environ) if is_terminal(sys.stdout) else 0


def is_terminal(stream: TextIO) -> bool:
    """Whether ``stream`` ends at a terminal."""
    try:
        return stream.isatty()
    except (AttributeError, ValueError, OSError):
        return False


def terminal_width(stream: TextIO, environ: Mapping[str, str]) -> int:
    """Columns, from 40 to `MAX_WIDTH`: of ``COLUMNS``, else of the terminal, else 80."""
    columns = environ.get("COLUMNS", "")
    width = int(columns) if columns.isascii() and columns.isdecimal() and len(columns) < 6 else 0
    if not width:
        try:
            width = os.get_terminal_size(stream.fileno()).columns
        except (AttributeError, ValueError, OSError):
            width = 0
    return max(40, min(width or 80, MAX_WIDTH))


def columns_line(head: str, text: str, width: int) -> Iterator[str]:
    """``head`` and ``text`` in ``width`` columns, further lines of ``text`` below its first; 0 columns: one line.

    >>> list(columns_line("a  ", "one two three four", 30)), list(columns_line("a" * 20, "one two", 0))
    (['a  one two three four'], ['aaaaaaaaaaaaaaaaaaaaone two'])
    """
    if not width or (text.isascii() and len(head) + len(text) <= width):
        yield f"{head}{text}".rstrip()
        return
    from doctor.report.layout.formatting import wrapped

    indent = display_width(head)
    if width - indent < MIN_ROOM:
        yield head.rstrip()
        head, indent = " " * 6, 6
    for number, part in enumerate(wrapped(text, width - indent)):
        yield (head if not number else " " * indent) + part


class Terminal(namedtuple("Terminal", ("tty", "colour", "unicode", "width"), defaults=(False, False, True, 80))):
    """The display of a report."""

    tty: bool
    colour: bool
    unicode: bool
    width: int


def detect_terminal(stream: TextIO, color: str, environ: Mapping[str, str]) -> Terminal:
    """The style for ``stream``.

    Colour: ``color`` (always, never or auto), then ``NO_COLOR``, then ``FORCE_COLOR`` (both when not empty), then
    ``TERM=dumb``, which has none, then whether it is a terminal.
    """
    tty = is_terminal(stream)
    utf8, width = is_utf8(getattr(stream, "encoding", None) or "ascii"), terminal_width(stream, environ) if tty else 0
    return Terminal(tty, _colour(tty, color, environ), utf8, width)


def _colour(tty: bool, color: str, environ: Mapping[str, str]) -> bool:
    if color != "auto":
        return color == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return tty and environ.get("TERM") != "dumb"


def topic_width() -> int:
    """Columns of the terminal; 80 in a pipe."""
    return terminal_columns() or 80


def page_width() -> int:
    """Columns of the terminal; 100 in a pipe."""
    return terminal_columns() or 100

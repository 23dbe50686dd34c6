"""Capabilities of the output: terminal or not, colour, non-ASCII signs, width."""

from __future__ import annotations

import codecs
import os
from collections.abc import Mapping
from typing import TextIO

import msgspec

MAX_WIDTH = 120
"""Longer lines are hard to read."""


class Terminal(msgspec.Struct, frozen=True):
    """The display of a report."""

    tty: bool = False
    colour: bool = False
    unicode: bool = True
    width: int = 80


def detect_terminal(stream: TextIO, color: str, environ: Mapping[str, str]) -> Terminal:
    """The look for ``stream``.

    Colour: ``color`` (always, never or auto), then ``NO_COLOR``, then ``FORCE_COLOR`` (both when not empty), then
    ``TERM=dumb``, which has none, then whether it is a terminal.
    """
    tty = _is_tty(stream)
    return Terminal(tty, _colour(tty, color, environ), _is_utf8(stream), _width(stream, environ) if tty else 0)


def _is_tty(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (AttributeError, ValueError, OSError):
        return False


def _colour(tty: bool, color: str, environ: Mapping[str, str]) -> bool:
    if color != "auto":
        return color == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return tty and environ.get("TERM") != "dumb"


def _is_utf8(stream: TextIO) -> bool:
    try:
        return codecs.lookup(getattr(stream, "encoding", None) or "ascii").name == "utf-8"
    except LookupError:
        return False


def _width(stream: TextIO, environ: Mapping[str, str]) -> int:
    columns = environ.get("COLUMNS", "")
    width = int(columns) if columns.isascii() and columns.isdecimal() and len(columns) < 6 else 0
    if not width:
        try:
            width = os.get_terminal_size(stream.fileno()).columns
        except (AttributeError, ValueError, OSError):
            width = 0
    return max(40, min(width or 80, MAX_WIDTH))

"""Capabilities of the output: terminal or not, colour, non-ASCII signs, width."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TextIO

import msgspec

from doctor.engine.output_encoding import is_utf8
from doctor.report.layout.columns import MAX_WIDTH as MAX_WIDTH
from doctor.report.layout.columns import is_terminal, terminal_width


class Terminal(msgspec.Struct, frozen=True):
    """The display of a report."""

    tty: bool = False
    colour: bool = False
    unicode: bool = True
    width: int = 80


def detect_terminal(stream: TextIO, color: str, environ: Mapping[str, str]) -> Terminal:
    """The style for ``stream``.

    Colour: ``color`` (always, never or auto), then ``NO_COLOR``, then ``FORCE_COLOR`` (both when not empty), then
    ``TERM=dumb``, which has none, then whether it is a terminal.
    """
    tty = is_terminal(stream)
    return Terminal(tty, _colour(tty, color, environ), _is_utf8(stream), terminal_width(stream, environ) if tty else 0)


def _colour(tty: bool, color: str, environ: Mapping[str, str]) -> bool:
    if color != "auto":
        return color == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return tty and environ.get("TERM") != "dumb"


def _is_utf8(stream: TextIO) -> bool:
    return is_utf8(getattr(stream, "encoding", None) or "ascii")

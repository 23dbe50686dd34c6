"""Lines of a report with a label in front, folded to a terminal's width."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

LABEL_WIDTH = 8
"""Cells of a label and the space after it."""


def labelled(label: str, text: str, width: int) -> Iterator[str]:
    """``text`` behind a label; its further lines begin below it. ``width`` 0: one line, however long.

    >>> list(labelled("does", "waits for rank 1", 20))
    ['does    waits for', '        rank 1']
    """
    yield from folded(text, width, " " * LABEL_WIDTH, f"{label:<{LABEL_WIDTH}}")


def folded(text: str, width: int, indent: str, first: str | None = None) -> Iterator[str]:
    """``text`` in lines of at most ``width`` characters, behind ``indent``, the first one behind ``first``."""
    first = indent if first is None else first
    if not width:
        yield (first + text).rstrip()
        return
    lines = textwrap.wrap(text, width, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False)
    yield from lines or [""]

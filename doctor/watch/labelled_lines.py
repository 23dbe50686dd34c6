"""Lines of a report with a label in front, folded to a terminal's width, in the language of this process."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.engine.language import is_english, localized, localized_filled
from doctor.report.layout.formatting import display_width, wrapped

LABEL_WIDTH = 8
"""Cells of a label and the space after it."""


def labelled(label: str, text: str, width: int) -> Iterator[str]:
    """``text`` behind a label; its further lines begin below it. ``width`` 0: one line, however long.

    >>> list(labelled("does", "waits for rank 1", 20))
    ['does    waits for', '        rank 1']
    """
    shown = label if is_english() or not label else localized(label)
    yield from folded(text, width, " " * LABEL_WIDTH, shown + " " * max(0, LABEL_WIDTH - display_width(shown)))


def folded(text: str, width: int, indent: str, first: str | None = None) -> Iterator[str]:
    """``text`` in lines of at most ``width`` cells, behind ``indent``, the first one behind ``first``."""
    first = indent if first is None else first
    text = localized_filled(text)
    if not width:
        yield (first + text).rstrip()
        return
    lines = wrapped(text, width - display_width(indent), width - display_width(first))
    yield (first + lines[0]).rstrip()
    yield from (indent + line for line in lines[1:])

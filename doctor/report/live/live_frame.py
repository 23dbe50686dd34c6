"""One frame of a live view: what is shown, and how it is fitted into the terminal. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from doctor.engine.language import localized_filled, phrase
from doctor.engine.output_encoding import display_width, padded, without_signs
from doctor.engine.secrets import hide_secrets
from doctor.engine.streams import harmless
from doctor.report.layout.finding_table import cut
from doctor.report.layout.formatting import bracketed, clean, translated
from doctor.report.layout.terminal import Terminal

MOST_VERDICTS = 4
"""Lines of verdicts."""
OUTPUT_LINES = 6
LEAST_ROWS = 5
"""Rows of the table that the last lines of the output leave."""
MAX_CELLS = 24
"""Of a column but the last."""
GAP = 2
MOST_CHARS = 400
"""Of one text."""
_BOLD, _DIM, _RED, _YELLOW = "1", "2", "1;31", "33"
_COLOURS = (_RED, _YELLOW, "")
"""By trouble."""


class LiveRow(msgspec.Struct, frozen=True):
    """A rank or a host."""

    cells: tuple[str, ...]
    trouble: int = 2
    """0: a fault; 1: to be looked at; 2: none."""
    weight: float = 0.0
    """Of rows of the same trouble, those with the most come first."""
    rest: str = ""
    """How it is counted where there is no room for it."""


class LiveView(msgspec.Struct, frozen=True):
    """What there is to show. All texts may be those of strangers."""

    title: str
    state: str
    columns: tuple[str, ...]
    """Of the table, in the language of this process."""
    rows: Sequence[LiveRow]
    verdicts: Sequence[str] = ()
    footer: str = ""


class _Line(NamedTuple):
    text: str
    colour: str = ""


def render_frame(view: LiveView, size: tuple[int, int], terminal: Terminal, output: Sequence[str] = ()) -> str:
    """``size``: columns and rows, which it has exactly. Its only control sequences are colours."""
    columns, height = size
    lines = [_Line(view.title, _BOLD), _Line(localized_filled(view.state))]
    lines += [_Line(text, _RED) for text in _verdicts(view.verdicts, height)]
    room = height - len(lines) - 2  # the head of the table, and the last line
    count = min(len(output), OUTPUT_LINES, max(0, room - LEAST_ROWS - 1))
    lines += _table(view, room - count - bool(count), columns)
    lines = lines[: height - 1 - count - bool(count)]
    if count:
        lines += [_Line(""), *(_Line(line, _DIM) for line in output[-count:])]
    lines += [_Line("")] * (height - 1 - len(lines))
    lines.append(_Line(localized_filled(view.footer), _DIM))
    return "\n".join(_finished(line, columns, terminal) for line in lines)


def _verdicts(texts: Sequence[str], height: int) -> list[str]:
    most = max(1, min(MOST_VERDICTS, height - 6))
    if len(texts) <= most:
        return [localized_filled(text) for text in texts]
    rest = phrase("{count} more verdicts", count=len(texts) - most + 1)
    return [*(localized_filled(text) for text in texts[: most - 1]), rest]


def _table(view: LiveView, room: int, columns: int) -> list[_Line]:
    """The head, the rows with the most trouble, and a line that counts the others where not all have room."""
    rows = sorted(view.rows, key=lambda row: (row.trouble, -row.weight))
    visible = rows if len(rows) <= room else rows[: max(0, room - 1)]
    cells = [view.columns]
    cells += [tuple(translated(cell, MOST_CHARS) for cell in row.cells) for row in visible]
    widths = [min(MAX_CELLS, max(map(display_width, column))) for column in zip(*cells, strict=True)][:-1]
    while widths and sum(widths) + GAP * len(widths) > columns * 2 // 3 and max(widths) > 4:
        widths[widths.index(max(widths))] -= 1
    colours = [_DIM, *(_COLOURS[row.trouble] for row in visible)]
    lines = []
    for row_cells, colour in zip(cells, colours, strict=True):
        fitted = [padded(cut(cell, width), width + GAP) for cell, width in zip(row_cells, widths, strict=False)]
        lines.append(_Line("".join(fitted) + row_cells[-1], colour))
    if len(visible) < len(rows) and room > 0:
        lines.append(_Line(_counted(rows[len(visible) :])))
    return lines


def _counted(rows: Sequence[LiveRow]) -> str:
    most = Counter(row.rest for row in rows).most_common(6)
    parts = [translated(word, 60) + bracketed(str(count)) for word, count in most]
    return phrase("{count} more: {parts}", count=len(rows), parts=", ".join(parts))


def _finished(line: _Line, columns: int, terminal: Terminal) -> str:
    """Without control characters and secrets, no wider than the frame."""
    text = harmless(hide_secrets(clean(line.text, MOST_CHARS)))
    text = cut(text if terminal.unicode else without_signs(text), columns)
    return f"\x1b[{line.colour}m{text}\x1b[0m" if terminal.colour and line.colour and text else text

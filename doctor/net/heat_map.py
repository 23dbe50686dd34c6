"""The matrix as a picture for a terminal: a row for each source, a column for each target. Pure.

Above 32 hosts, or where the terminal is too narrow, neighbouring hosts share a row; a single failure among
thousands of attempts is still drawn. All of it is ASCII, names of hosts, too: they are untrusted.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from doctor.engine.language import localized
from doctor.engine.output_encoding import display_width, padded
from doctor.engine.sanitize import strip_control_chars
from doctor.net.grid import Grid, Rectangle, mask_of
from doctor.net.matrix import FAILING, PARTLY, Matrix

MOST_ROWS = 32
MOST_LABEL = 24
"""Characters of a row's name."""
LEAST_WIDTH = 40

_SIGNS = {
    "open": ".",
    "few": "-",
    "some": "+",
    "most": "*",
    "all": "#",
    "partly": "%",
    "reverse": "~",
    "not needed": "x",
    "unknown": "?",
    "untried": " ",
    "self": "\\",
}
_LEGEND = {
    "open": "all open",
    "few": "under 1/4 of attempts fail",
    "some": "under 1/2 of attempts fail",
    "most": "1/2 of attempts or more fail",
    "all": "all fail",
    "partly": "only some connections or packets pass",
    "reverse": "unknown while the other direction fails",
    "not needed": "fails, and the job connects the other way round",
    "unknown": "unknown",
}


class _Block(msgspec.Struct, frozen=True):
    """Hosts that share a row."""

    label: str
    mask: int
    size: int


def heat_map(matrix: Matrix, width: int = 80) -> list[str]:
    r"""Lines of at most ``width`` characters (40 at least).

    >>> from doctor.net.matrix import TestedPort
    >>> matrix = Matrix(("n1", "n2", "n3"), (TestedPort("master", 29500),), (("-od", "o-d", "oo-"),))
    >>> for line in heat_map(matrix):
    ...     print(line)
    to:   0 1 2
    0 n1  \ . #
    1 n2  . \ #
    2 n3  . . \
    . all open  # all fail
    """
    if not matrix.hosts:
        return []
    width = max(width, LEAST_WIDTH)
    blocks = _blocks(matrix.hosts, width)
    number_width = len(str(len(blocks) - 1))
    label_width = max(len(block.label) for block in blocks)
    margin = number_width + 1 + label_width + 2
    gap = " " if margin + 2 * len(blocks) <= width else ""
    drawn = _states(matrix, blocks)
    lines = [*_header(len(blocks), margin, gap)]
    for place, (block, states) in enumerate(zip(blocks, drawn, strict=True)):
        name = f"{place:>{number_width}} {block.label:<{label_width}}  "
        lines.append((name + gap.join(_SIGNS[state] for state in states)).rstrip())
    return [*lines, *_legend({state for states in drawn for state in states}, width)]


def _legend(states: set[str], width: int) -> list[str]:
    """What the signs mean, those that were drawn, wrapped."""
    lines: list[tuple[int, str]] = []
    for state in (state for state in _LEGEND if state in states):
        text = localized(_LEGEND[state])
        item, length = f"{_SIGNS[state]} {text}", 2 + display_width(text)
        if lines and lines[-1][0] + 2 + length <= width:
            lines[-1] = (lines[-1][0] + 2 + length, f"{lines[-1][1]}  {item}")
        else:
            lines.append((length, item))
    return [line for _, line in lines]


def _header(columns: int, margin: int, gap: str) -> list[str]:
    """The numbers of the columns, read downwards."""
    digits = len(str(columns - 1))
    numbers = [str(column).rjust(digits) for column in range(columns)]
    lines = [gap.join(number[row] for number in numbers) for row in range(digits)]
    title = padded(localized("to:"), margin)
    return [f"{title if row == digits - 1 else ' ' * margin}{line}".rstrip() for row, line in enumerate(lines)]


def _blocks(hosts: Sequence[str], width: int) -> list[_Block]:
    names = [_label(name) for name in hosts]
    room = width - MOST_LABEL - 6
    most = min(MOST_ROWS, room)
    if len(hosts) <= most:
        return [_Block(name, 1 << host, 1) for host, name in enumerate(names)]
    size = -(-len(hosts) // most)
    starts = range(0, len(hosts), size)
    return [_range_block(names, start, min(start + size, len(hosts))) for start in starts]


def _range_block(names: Sequence[str], start: int, end: int) -> _Block:
    first, last = names[start], names[end - 1]
    label = first if end - start == 1 else f"{_label(first, 11)}..{_label(last, 11)}"
    return _Block(label, mask_of(range(start, end)), end - start)


def _label(name: str, limit: int = MOST_LABEL) -> str:
    """A name in ASCII; of a long one the end, in which hosts differ."""
    ascii_name = strip_control_chars(name, 200).encode("ascii", "backslashreplace").decode() or "?"
    return ascii_name if len(ascii_name) <= limit else "~" + ascii_name[1 - limit :]


def _states(matrix: Matrix, blocks: Sequence[_Block]) -> list[list[str]]:
    """The state of each block of sources with each block of targets, over all ports."""
    kinds = (FAILING, "o", "?!", PARTLY, "v")
    failed, opened, doubtful, partly, unneeded = (Grid.of(matrix, letters) for letters in kinds)
    ports = range(len(matrix.ports))
    table = []
    for source in blocks:
        states = []
        for target in blocks:
            side = Rectangle(source.mask, target.mask)
            if source is target and source.size == 1:
                states.append("self")
                continue
            bad = sum(failed.count(port, side) for port in ports)
            good = sum(opened.count(port, side) for port in ports)
            state = _state(bad, good, any(doubtful.any(port, side) for port in ports))
            if state == "all" and bad == sum(partly.count(port, side) for port in ports):
                state = "partly"
            elif state == "unknown" and any(failed.any(port, Rectangle(target.mask, source.mask)) for port in ports):
                state = "reverse"
            elif state in ("open", "untried") and any(unneeded.any(port, side) for port in ports):
                state = "not needed"
            states.append(state)
        table.append(states)
    return table


def _state(bad: int, good: int, doubtful: bool) -> str:
    """By the share of failures among what is known; what is unknown is shown where nothing failed."""
    if not bad:
        return "unknown" if doubtful else "open" if good else "untried"
    share = bad / (bad + good)
    return "all" if share == 1 else "most" if share >= 0.5 else "some" if share >= 0.25 else "few"

"""The matrix as a picture for a terminal: a row for each source, a column for each target. Pure.

Above 32 hosts, or where the terminal is too narrow, neighbouring hosts, or the hosts of a group, share a row; a single
failure among thousands of attempts is still drawn. Names of hosts and groups are untrusted: they are shown in ASCII.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from doctor.engine.language import localized
from doctor.engine.output_encoding import display_width, padded
from doctor.engine.sanitize import strip_control_chars
from doctor.net.grid import Grid, Rectangle, mask_of
from doctor.net.host_groups import HostGroup
from doctor.net.matrix import FAILING, Matrix

MOST_ROWS = 32
MOST_LABEL = 24
"""Characters of a row's name."""
LEAST_WIDTH = 40

_MARKS = {
    # state: Unicode, ASCII, SGR, legend
    "open": ("·", ".", "32", "all open"),
    "few": ("░", "-", "33", "below a quarter fails"),
    "some": ("▒", "+", "33", "below a half"),
    "most": ("▓", "*", "31", "a half and more"),
    "all": ("█", "#", "1;31", "all fails"),
    "unknown": ("?", "?", "35", "unknown"),
    "untried": (" ", " ", "", ""),
    "self": ("╲", "\\", "2", ""),
}


class _Block(msgspec.Struct, frozen=True):
    """Hosts that share a row."""

    label: str
    mask: int
    size: int


def heat_map(
    matrix: Matrix, width: int = 80, unicode: bool = True, colour: bool = False, groups: Sequence[HostGroup] = ()
) -> list[str]:
    r"""Lines of at most ``width`` characters (40 at least), escape sequences not counted.

    ``groups`` of one kind that hold every host are the rows where hosts must share them; else ranges of hosts are.

    >>> from doctor.net.matrix import TestedPort
    >>> matrix = Matrix(("n1", "n2", "n3"), (TestedPort("master", 29500),), (("-od", "o-d", "oo-"),))
    >>> for line in heat_map(matrix, unicode=False):
    ...     print(line)
    to:   0 1 2
    0 n1  \ . #
    1 n2  . \ #
    2 n3  . . \
    . all open  # all fails
    """
    if not matrix.hosts:
        return []
    width = max(width, LEAST_WIDTH)
    blocks = _blocks(matrix.hosts, width, groups)
    number_width = len(str(len(blocks) - 1))
    label_width = max(len(block.label) for block in blocks)
    margin = number_width + 1 + label_width + 2
    gap = " " if margin + 2 * len(blocks) <= width else ""
    drawn = _states(matrix, blocks)
    pen = _Pen(unicode, colour)
    lines = [*_header(len(blocks), margin, gap)]
    for place, (block, states) in enumerate(zip(blocks, drawn, strict=True)):
        name = f"{place:>{number_width}} {block.label:<{label_width}}  "
        lines.append((name + pen.row(states, gap)).rstrip())
    return [*lines, *pen.legend({state for states in drawn for state in states}, width)]


class _Pen:
    """Draws states in the signs and colours that the terminal has."""

    def __init__(self, unicode: bool, colour: bool) -> None:
        self.column, self.colour = 0 if unicode else 1, colour

    def sign(self, state: str) -> str:
        sign, code = _MARKS[state][self.column], _MARKS[state][2]
        return f"\x1b[{code}m{sign}\x1b[0m" if self.colour and code else sign

    def row(self, states: Sequence[str], gap: str) -> str:
        return gap.join(map(self.sign, states))

    def legend(self, states: set[str], width: int) -> list[str]:
        """What the signs mean, those that were drawn, wrapped."""
        lines: list[tuple[int, str]] = []
        for state in (state for state, mark in _MARKS.items() if mark[3] and state in states):
            text = localized(_MARKS[state][3])
            item, length = f"{self.sign(state)} {text}", 2 + display_width(text)
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


def _blocks(hosts: Sequence[str], width: int, groups: Sequence[HostGroup]) -> list[_Block]:
    names = [_label(name) for name in hosts]
    room = width - MOST_LABEL - 6
    most = min(MOST_ROWS, room)
    if len(hosts) <= most:
        return [_Block(name, 1 << host, 1) for host, name in enumerate(names)]
    if 1 < len(groups) <= most and sorted(host for group in groups for host in group.hosts) == list(range(len(hosts))):
        return [_Block(_label(group.label), mask_of(group.hosts), len(group.hosts)) for group in groups]
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
    failed, opened, doubtful = (Grid.of(matrix, letters) for letters in (FAILING, "o", "?!"))
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
            states.append(_state(bad, good, any(doubtful.any(port, side) for port in ports)))
        table.append(states)
    return table


def _state(bad: int, good: int, doubtful: bool) -> str:
    """By the share of failures among what is known; what is unknown is shown where nothing failed."""
    if not bad:
        return "unknown" if doubtful else "open" if good else "untried"
    share = bad / (bad + good)
    return "all" if share == 1 else "most" if share >= 0.5 else "some" if share >= 0.25 else "few"

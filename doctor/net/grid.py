"""The failed and the working cells of a matrix as bit masks, row by row and column by column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from doctor.net.matrix import FAILING, Matrix, bits, columns

Masks = list[list[int]]
"""For each port, for each host: the hosts of the other side as the bits of a number."""


class Rectangle(msgspec.Struct, frozen=True):
    """Cells from any of the sources to any of the targets."""

    sources: int
    """A mask."""
    targets: int


class Grid:
    """Cells of one kind (failed, say), by row and by column, so that either side is counted quickly."""

    def __init__(self, rows: Masks, by_target: Masks) -> None:
        self.rows, self.by_target = rows, by_target

    @classmethod
    def of(cls, matrix: Matrix, letters: str) -> Grid:
        rows = [[bits(text, letters) for text in texts] for texts in matrix.rows]
        by_target = [[bits(text, letters) for text in columns(texts)] for texts in matrix.rows]
        return cls(rows, by_target)

    def count(self, port: int, rectangle: Rectangle) -> int:
        lines, across, along = self._shorter(port, rectangle)
        return sum((lines[host] & across).bit_count() for host in along)

    def any(self, port: int, rectangle: Rectangle) -> bool:
        lines, across, along = self._shorter(port, rectangle)
        return any(lines[host] & across for host in along)

    def cut(self, port: int, rectangle: Rectangle) -> list[tuple[int, int]]:
        """Source and targets of the cells of the rectangle, on one port; rows without any are left out."""
        rows = self.rows[port]
        cells = ((source, rows[source] & rectangle.targets) for source in members(rectangle.sources))
        return [(source, targets) for source, targets in cells if targets]

    def clear(self, port: int, rectangle: Rectangle) -> None:
        for lines, here, across in (
            (self.rows[port], rectangle.sources, rectangle.targets),
            (self.by_target[port], rectangle.targets, rectangle.sources),
        ):
            for host in members(here):
                lines[host] &= ~across

    def _shorter(self, port: int, rectangle: Rectangle) -> tuple[Sequence[int], int, Iterable[int]]:
        if rectangle.sources.bit_count() <= rectangle.targets.bit_count():
            return self.rows[port], rectangle.targets, members(rectangle.sources)
        return self.by_target[port], rectangle.sources, members(rectangle.targets)

    def copy(self) -> Grid:
        return Grid([list(rows) for rows in self.rows], [list(rows) for rows in self.by_target])


class CellMap:
    """The failed and the working cells of a matrix. What was not tried, or is unknown, is neither."""

    def __init__(self, matrix: Matrix) -> None:
        self.hosts, self.ports = len(matrix.hosts), len(matrix.ports)
        self.everyone = (1 << self.hosts) - 1
        self.failed = Grid.of(matrix, FAILING)
        self.open = Grid.of(matrix, "o")
        self.failing_ports = [port for port in range(self.ports) if any(self.failed.rows[port])]


def members(mask: int) -> Iterator[int]:
    """The hosts of a mask, in order.

    >>> list(members(0b1010))
    [1, 3]
    """
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def mask_of(hosts: Iterable[int]) -> int:
    """The mask of some hosts."""
    mask = 0
    for host in hosts:
        mask |= 1 << host
    return mask

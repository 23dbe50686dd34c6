"""Which processes share a rank number, have none, or have one outside the job; and which numbers are missing. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

import msgspec

Item = TypeVar("Item")


class RankNumbers(msgspec.Struct, Generic[Item], frozen=True):
    """The processes of a job by their rank numbers."""

    by_rank: dict[int, list[Item]]
    unnumbered: tuple[Item, ...]
    """Processes without a number; a negative one is none."""

    @property
    def repeated(self) -> dict[int, list[Item]]:
        """Numbers that several processes have, with these, in the order of the numbers."""
        return {rank: items for rank, items in sorted(self.by_rank.items()) if len(items) > 1}

    def absent(self, world: int) -> list[int]:
        """The numbers of a job with ``world`` ranks that no process has."""
        return [rank for rank in range(world) if rank not in self.by_rank]


def rank_numbers(items: Iterable[Item], rank: Callable[[Item], int | None]) -> RankNumbers[Item]:
    """Sorts processes by the number that ``rank`` reads of each.

    >>> numbers = rank_numbers([(0, "a"), (2, "b"), (2, "c"), (None, "d")], lambda pair: pair[0])
    >>> numbers.repeated, numbers.absent(3), numbers.unnumbered
    ({2: [(2, 'b'), (2, 'c')]}, [1], ((None, 'd'),))
    """
    by_rank: dict[int, list[Item]] = {}
    unnumbered: list[Item] = []
    for item in items:
        number = rank(item)
        if number is None or number < 0:
            unnumbered.append(item)
        else:
            by_rank.setdefault(number, []).append(item)
    return RankNumbers(by_rank, tuple(unnumbered))

"""Who differs from whom: ranks that must have a value alike, and ranks that must not. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from doctor.analysis.majority import Split, split
from doctor.engine.grouping import lists_by_key
from doctor.engine.sanitize import number_ranges

Value = TypeVar("Value", bound=Hashable)
Order = TypeVar("Order", int, tuple[int, ...])
Part = TypeVar("Part", int, str)


def majority_split(
    values: Mapping[int, Value], *casting: Value, hosts: Mapping[int, str] | None = None
) -> Split[int] | None:
    """Which ranks differ from most, in their order; ``casting`` decides a tie. None when all agree.

    ``hosts``, by rank: where there are several, hosts vote and not ranks: all ranks of a host may be wrong alike.

    >>> majority_split({0: "a", 1: "b", 2: "a"}).differing
    (1,)
    """
    return split(sorted(values), values.__getitem__, *casting, voter=hosts.__getitem__ if hosts else None)


def split_by_name(tables: Mapping[int, Mapping[str, Any]], ranks: Sequence[int]) -> Split[int] | None:
    """Who holds other values than most, of those names that all ``ranks`` have; None where a rank has no table.

    >>> parts = split_by_name({0: {"w": 1, "b": 2}, 1: {"w": 1, "b": 3}, 2: {"w": 1, "b": 2}}, [0, 1, 2])
    >>> parts.differing, parts.names
    ((1,), ('b',))
    """
    if any(rank not in tables for rank in ranks):
        return None
    shared = [name for name in tables[ranks[0]] if all(tables[rank].get(name) for rank in ranks)]
    parts = majority_split({rank: tuple(str(tables[rank][name]) for name in shared) for rank in ranks})
    if parts is None:
        return None
    usual = tables[parts.norm]
    names = [name for name in shared if any(tables[rank][name] != usual[name] for rank in parts.differing)]
    return msgspec.structs.replace(parts, names=tuple(names))


def holders_of_same(values: Mapping[int, Value]) -> list[tuple[int, ...]]:
    """Ranks that have one value in common, where each should have its own; empty values are none.

    >>> holders_of_same({0: "a", 1: "b", 2: "a", 3: ""})
    [(0, 2)]
    """
    holders = lists_by_key((value, rank) for rank, value in values.items() if value)
    return [tuple(sorted(ranks)) for ranks in holders.values() if len(ranks) > 1]


def names_held_alike(tables: Mapping[int, Mapping[str, Hashable]]) -> dict[tuple[int, ...], list[str]]:
    """Ranks that have values in common, where each should have its own, with the names of these values.

    >>> names_held_alike({0: {"torch": 5, "numpy": 1}, 1: {"torch": 5, "numpy": 2}, 2: {"torch": 6}})
    {(0, 1): ['torch']}
    """
    return lists_by_key(
        (ranks, name)
        for name in dict.fromkeys(name for table in tables.values() for name in table)
        for ranks in holders_of_same({rank: table.get(name) for rank, table in tables.items()})
    )


def first_makers(orders: Mapping[int, Order]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ranks at which something appeared first, and the others, to which it spread. ``orders``: when, by rank.

    >>> first_makers({0: 2, 1: 1, 2: 2})
    ((1,), (0, 2))
    """
    first = min(orders.values())
    makers = tuple(sorted(rank for rank, order in orders.items() if order == first))
    return makers, tuple(sorted(set(orders) - set(makers)))


def shared_and_unread(
    read: Mapping[int, Iterable[Part]], expected: Iterable[Part] = ()
) -> tuple[dict[Part, list[int]], list[Part]]:
    """Parts of the data that several readers read, each with them, and expected parts that no reader reads.

    >>> shared_and_unread({0: [1, 2], 1: [2, 3]}, range(1, 5))
    ({2: [0, 1]}, [4])
    """
    readers = lists_by_key((part, reader) for reader, parts in read.items() for part in parts)
    return {part: by for part, by in sorted(readers.items()) if len(by) > 1}, sorted(set(expected) - set(readers))


def format_ranges(numbers: Iterable[int]) -> str:
    """Numbers in words, runs folded.

    >>> format_ranges([0, 1, 2, 3, 7])
    '0-3, 7'
    """
    return number_ranges(numbers, ", ") or "none"

"""Values by key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


def lists_by_key(pairs: Iterable[tuple[KeyT, ValueT]]) -> dict[KeyT, list[ValueT]]:
    """The values of each key, both in the order in which they come."""
    groups: dict[KeyT, list[ValueT]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def sets_by_key(pairs: Iterable[tuple[KeyT, ValueT]]) -> dict[KeyT, set[ValueT]]:
    """The values of each key, keys in the order in which they come."""
    return {key: set(values) for key, values in lists_by_key(pairs).items()}


def all_reached(starts: Iterable[KeyT], neighbours: Mapping[KeyT, set[KeyT]]) -> set[KeyT]:
    """All that neighbours lead to, and where it starts.

    >>> sorted(all_reached([1], {1: {2}, 2: {1, 3}, 4: {1}}))
    [1, 2, 3]
    """
    reached = set(starts)
    frontier = [*reached]
    while frontier:
        ahead = neighbours.get(frontier.pop(), set()) - reached
        reached |= ahead
        frontier.extend(ahead)
    return reached

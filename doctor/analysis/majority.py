"""The one way in which ranks, hosts and devices outvote each other. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from doctor.engine.check import Skip
from doctor.engine.result import Finding

Value = TypeVar("Value", bound=Hashable)
Item = TypeVar("Item")


def winner(votes: Mapping[Value, int], casting: Value | None = None) -> Value | None:
    """The value with most votes; ``casting`` decides a tie that it is part of. None for other ties, and without votes.

    >>> winner({"a": 2, "b": 1}), winner({"a": 1, "b": 1}), winner({"a": 1, "b": 1}, "b"), winner({})
    ('a', None, 'b', None)
    """
    most = max(votes.values(), default=0)
    top = [value for value, count in votes.items() if count == most]
    return top[0] if len(top) == 1 else casting if casting in top else None


class Split(msgspec.Struct, Generic[Item], frozen=True):
    """Items with two or more values, divided by the value that most of them have."""

    common: Hashable
    """The value of most; None at a tie: which is wrong cannot be decided."""
    agreeing: tuple[Item, ...]
    differing: tuple[Item, ...]
    """All others."""
    kinds: int
    """How many values there are."""

    @property
    def tie(self) -> bool:
        """No value has most of the votes."""
        return not self.agreeing

    @property
    def majority(self) -> bool:
        """More than half agree."""
        return len(self.agreeing) > len(self.differing)


def split(items: Iterable[Item], value: Callable[[Item], Hashable]) -> Split[Item] | None:
    """Who differs from most others; None where all have one value.

    >>> split([1, 3, 4, 5], lambda number: number % 2).differing
    (4,)
    >>> split([1, 2, 3, 4], lambda number: number % 2).tie
    True
    >>> split([1, 3], lambda number: number % 2) is None
    True
    """
    rows = [(value(item), item) for item in items]
    votes = Counter(key for key, _ in rows)
    if len(votes) < 2:
        return None
    common = winner(votes)
    agreeing = tuple(item for key, item in rows if key == common) if common is not None else ()
    return Split(common, agreeing, tuple(item for key, item in rows if not agreeing or key != common), len(votes))


def differing(values: Mapping[str, Any], template: str, **more: Any) -> Iterator[Finding]:
    """A finding for each value that fewer hosts have than the commonest one; for a tie, one that blames all hosts.

    The template may name ``observed``, ``expected``, ``count`` (hosts that have ``expected``) and ``total``.
    Raises: Skip for a fleet of one.
    """
    if len(values) < 2:
        raise Skip("a single host cannot be compared")
    groups: dict[Any, list[str]] = {}
    for host, value in values.items():
        groups.setdefault(value, []).append(host)
    ranked = sorted(groups, key=lambda value: (-len(groups[value]), str(value)))
    parts = split(values, values.__getitem__)
    if parts is None:
        return
    if parts.tie:
        hosts_by_value = {str(value): groups[value] for value in ranked}
        yield Finding(
            "the hosts differ, and no value has a majority: {groups}; expected one",
            hosts=list(values),
            groups=hosts_by_value,
            **more,
        )
        return
    counts = {"expected": parts.common, "count": len(parts.agreeing), "total": len(values)}
    for observed in ranked[1:]:
        yield Finding(template, hosts=groups[observed], observed=observed, **counts, **more)

"""The groups of the catalogue, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

AREAS = (
    "reach",
    "kernel",
    "firewall",
    "memory",
    "devices",
    "addresses",
    "links",
    "versions",
    "ranks",
    "smoke",
    "site",
)


class Named(Protocol):
    """A check, or its line in the list."""

    @property
    def name(self) -> str: ...
    @property
    def area(self) -> str: ...


One = TypeVar("One", bound=Named)


def by_area(named: Iterable[One]) -> Iterator[tuple[str, list[One]]]:
    """The areas in their order, unknown ones last, each with its checks by name."""
    place = {area: number for number, area in enumerate(AREAS)}
    found = sorted(named, key=lambda one: (place.get(one.area, len(place)), one.area, one.name))
    for area in dict.fromkeys(one.area for one in found):
        yield area, [one for one in found if one.area == area]

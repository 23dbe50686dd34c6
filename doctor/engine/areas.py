"""The groups of the catalogue, in the order in which they are shown."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Protocol, TypeVar

    class HasArea(Protocol):
        """A check, or its line in the list."""

        @property
        def name(self) -> str: ...
        @property
        def area(self) -> str: ...

    HasAreaT = TypeVar("HasAreaT", bound=HasArea)

AREAS = (
    "connectivity",
    "network",
    "kernel",
    "firewall",
    "memory",
    "devices",
    "addresses",
    "links",
    "versions",
    "ranks",
    "training",
    "smoke",
    "loss",
    "site",
)


def by_area(checks: Iterable[HasAreaT]) -> Iterator[tuple[str, list[HasAreaT]]]:
    """The areas in their order, unknown ones last, each with its checks by name."""
    place = {area: number for number, area in enumerate(AREAS)}
    ordered = sorted(checks, key=lambda check: (place.get(check.area, len(place)), check.area, check.name))
    for area in dict.fromkeys(check.area for check in ordered):
        yield area, [check for check in ordered if check.area == area]


ROUND_AREAS = ("smoke", "network", "loss")
"""Areas whose checks need a smoke run, a network test or a watched program, which are there only if asked for."""

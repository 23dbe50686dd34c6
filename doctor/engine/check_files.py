"""The files of the bundled checks: where they lie, what each declares, and the areas that group them.

Light: quick commands load it, so it imports no library, and runs no check's file.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Collection, Iterable, Iterator
    from typing import Protocol, TypeVar

    class HasArea(Protocol):
        """A check, or its line in the list."""

        @property
        def name(self) -> str: ...
        @property
        def area(self) -> str: ...

    HasAreaT = TypeVar("HasAreaT", bound=HasArea)

AREAS = (
    *("connectivity", "network", "kernel", "firewall", "memory", "devices", "addresses", "links", "versions"),
    *("ranks", "training", "smoke", "loss", "site"),
)


def by_area(checks: Iterable[HasAreaT]) -> Iterator[tuple[str, list[HasAreaT]]]:
    """The areas in their order, unknown ones last, each with its checks by name."""
    place = {area: number for number, area in enumerate(AREAS)}
    ordered = sorted(checks, key=lambda check: (place.get(check.area, len(place)), check.area, check.name))
    for area in dict.fromkeys(check.area for check in ordered):
        yield area, [check for check in ordered if check.area == area]


ROUND_AREAS = ("smoke", "network", "loss")
"""Areas whose checks need a smoke run, a network test or a watched program, which are there only if asked for."""

PACKAGE_FOLDER = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


def bundled_path(folder: str) -> str:
    """The folder ``checks`` or ``playbooks``: inside the package, or beside it in a clone.

    The current directory and ``sys.path`` play no part: a repository's own ``checks/`` is never taken for ours.
    """
    installed = os.path.join(PACKAGE_FOLDER, folder)
    return installed if os.path.isdir(installed) else os.path.join(os.path.dirname(PACKAGE_FOLDER), folder)


def bundled_check_paths() -> list[str]:
    """The files of the bundled checks, sorted by name."""
    folder = bundled_path("checks")
    names = sorted(name for name in os.listdir(folder) if name.endswith(".py") and "a" <= name[0] <= "z")
    return [os.path.join(folder, name) for name in names]


DECLARATION = (
    r'(?m)^@check\(severity=(?P<severity>ERROR|WARNING), area="(?P<area>[a-z]+)"'
    r"(?:, (?:single_host|follows_from|explained_by|advisory|about|apart)=[A-Z_]+)*\)\n"
    r"def (?P<name>[a-z_0-9]+)\((?:[^()]|\([^()]*\))*\) -> Iterator\[Finding\]:\n"
    r'    r?"""(?P<claim>[^\n"]+?)\.?(?:"""|\n)'
)


def is_named(check: HasArea, names: Collection[str]) -> bool:
    """By its own name or that of its area."""
    return check.name in names or check.area in names


def read_declaration(path: str | os.PathLike[str], stem: str) -> re.Match[str] | None:
    """``severity``, ``area``, ``name`` and ``claim`` of the check ``stem``; None for a file that looks unusual.

    >>> from doctor.engine.catalog import bundled_folder
    >>> read_declaration(bundled_folder("checks") / "disk_full.py", "disk_full")["area"]
    'memory'
    """
    import re

    with open(path, encoding="utf-8") as file:
        match = re.search(DECLARATION, file.read())
    return match if match and match["name"] == stem else None

"""The list of checks, read off their files without running them: what `doctor list` shows at once.

A file that does not look as usual is loaded after all, so that the list is right at any price.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from doctor.engine.areas import by_area

_DECLARATION = re.compile(
    r'^@check\(severity=(?P<severity>ERROR|WARNING), area="(?P<area>[a-z]+)"\)\n'
    r"def (?P<name>[a-z_0-9]+)\((?:[^()]|\([^()]*\))*\) -> Iterator\[Finding\]:\n"
    r'    r?"""(?P<claim>[^\n"]+?)\.?(?:"""|\n)',
    re.M,
)


class Listed(NamedTuple):
    """One line of the list."""

    name: str
    severity: str
    area: str
    claim: str


def skim(path: Path) -> Listed:
    """A check's line. Raises: `doctor.engine.check.BadCheck`."""
    found = _DECLARATION.search(path.read_text("utf-8"))
    if found and found["name"] == path.stem:
        return Listed(path.stem.replace("_", "-"), found["severity"].lower(), found["area"], found["claim"])
    from doctor.engine.catalog import load

    check = load(path, "doctor.listed")
    return Listed(check.name, check.severity.value, check.area, check.claim)


def listing(listed: Sequence[Listed]) -> str:
    """One line a check, by area: name, severity, claim."""
    width = max((len(one.name) for one in listed), default=0)
    lines: list[str] = []
    for area, members in by_area(listed):
        lines += ["", area] if lines else [area]
        lines += [f"  {one.name:<{width}}  {one.severity:<7}  {one.claim}" for one in members]
    return "\n".join(lines) + "\n"

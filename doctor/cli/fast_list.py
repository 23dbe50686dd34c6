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


class CheckListEntry(NamedTuple):
    """One line of the list."""

    name: str
    severity: str
    area: str
    claim: str


def read_list_entry(path: Path) -> CheckListEntry:
    """A check's line. Raises: `doctor.engine.check.BadCheck`."""
    match = _DECLARATION.search(path.read_text("utf-8"))
    if match and match["name"] == path.stem:
        return CheckListEntry(path.stem.replace("_", "-"), match["severity"].lower(), match["area"], match["claim"])
    from doctor.engine.catalog import load_check

    check = load_check(path, "doctor.listed")
    return CheckListEntry(check.name, check.severity.value, check.area, check.claim)


def format_check_list(entries: Sequence[CheckListEntry]) -> str:
    """One line a check, by area: name, severity, claim."""
    width = max((len(entry.name) for entry in entries), default=0)
    lines: list[str] = []
    for area, members in by_area(entries):
        lines += ["", area] if lines else [area]
        lines += [f"  {entry.name:<{width}}  {entry.severity:<7}  {entry.claim}" for entry in members]
    return "\n".join(lines) + "\n"

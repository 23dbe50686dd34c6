"""The list of checks, read off their files without running them: what `doctor list` shows at once.

A file that does not look as usual is loaded after all, so that the list is right at any price.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from doctor.engine.areas import by_area
from doctor.engine.catalog import check_files
from doctor.report.layout.columns import columns_line, terminal_columns

if TYPE_CHECKING:
    from doctor.cli.search import SearchText

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


def read_search_text(path: Path) -> SearchText[CheckListEntry]:
    """What a search reads of a check: its line and its page, off the file. Raises: `doctor.engine.check.BadCheck`."""
    from doctor.cli.search import SearchText

    entry = read_list_entry(path)
    _, _, rest = path.read_text("utf-8").partition(f"def {path.stem}(")
    page = rest.split('"""', 2)[1:2]
    return SearchText(entry, entry.name, f"{entry.claim} {entry.area}", "".join(page))


def check_list(words: Sequence[str] = ()) -> str:
    """What `doctor list` writes of the built-in checks: all by area, or those that have the words, best first.

    Raises: CommandError, exit code 1, when no check has the words.
    """
    columns = terminal_columns(sys.stdout, os.environ)
    if not words:
        return format_check_list([read_list_entry(path) for path, _ in check_files()], columns)
    from doctor.cli.search import search

    return format_matches(search(words, [read_search_text(path) for path, _ in check_files()], "check"), columns)


def format_check_list(entries: Sequence[CheckListEntry], columns: int = 0) -> str:
    """By area, one entry a check: name, severity, claim; of at most ``columns``, 0: one line a check."""
    width = max((len(entry.name) for entry in entries), default=0)
    lines: list[str] = []
    for area, members in by_area(entries):
        lines += ["", area] if lines else [area]
        for entry in members:
            lines += columns_line(f"  {entry.name:<{width}}  {entry.severity:<7}  ", _printable(entry.claim), columns)
    return "\n".join(lines) + "\n"


def format_matches(entries: Sequence[CheckListEntry], columns: int = 0) -> str:
    """In the order given, one entry a check: name, severity, area, claim."""
    width = max((len(entry.name) for entry in entries), default=0)
    areas = max((len(entry.area) for entry in entries), default=0)
    lines: list[str] = []
    for entry in entries:
        head = f"{entry.name:<{width}}  {entry.severity:<7}  {entry.area:<{areas}}  "
        lines += columns_line(head, _printable(entry.claim), columns)
    return "\n".join(lines) + "\n"


def _printable(text: str) -> str:
    """A claim of a site's own check may hold anything."""
    if text.isprintable():
        return text
    from doctor.engine.sanitize import strip_control_chars

    return strip_control_chars(text)

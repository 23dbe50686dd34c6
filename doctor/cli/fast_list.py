"""The list of checks, read off their files without running them: what `doctor list` shows at once.

A file that does not look as usual is loaded after all, so that the list is right at any price.
"""

from __future__ import annotations

import os
from collections import namedtuple

from doctor.engine.check_files import bundled_check_paths, by_area, read_declaration
from doctor.engine.language import localized
from doctor.report.layout.terminal import columns_line, terminal_columns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from doctor.cli.search import SearchText


CheckListEntry = namedtuple("CheckListEntry", ("name", "severity", "area", "claim"))
"""One line of the list. Of ``collections``: importing typing or dataclasses would take longer than the list itself."""


def _stem(path: str | os.PathLike[str]) -> str:
    return os.path.splitext(os.path.basename(path))[0]


def read_list_entry(path: str | os.PathLike[str]) -> CheckListEntry:
    """A check's line. Raises: `doctor.engine.check.BadCheck`."""
    name = _stem(path)
    match = read_declaration(path, name)
    if match:
        return CheckListEntry(name.replace("_", "-"), match["severity"].lower(), match["area"], match["claim"])
    from pathlib import Path

    from doctor.engine.catalog import load_check

    check = load_check(Path(path), "doctor.listed")
    return CheckListEntry(check.name, check.severity.value, check.area, check.claim)


def read_search_text(path: str | os.PathLike[str]) -> SearchText[CheckListEntry]:
    """What a search reads of a check: its line and its page, off the file. Raises: `doctor.engine.check.BadCheck`."""
    from doctor.cli.search import SearchText

    entry = read_list_entry(path)
    with open(path, encoding="utf-8") as file:
        _, _, rest = file.read().partition(f"def {_stem(path)}(")
    page = rest.split('"""', 2)[1:2]
    return SearchText(entry, entry.name, f"{entry.claim} {entry.area}", "".join(page))


def check_list(words: Sequence[str] = ()) -> str:
    """What `doctor list` writes of the built-in checks: all by area, or those that have the words, best first.

    Raises: CommandError, exit code 1, when no check has the words.
    """
    columns = terminal_columns()
    if not words:
        return format_check_list([read_list_entry(path) for path in bundled_check_paths()], columns)
    from doctor.cli.search import search

    return format_matches(search(words, [read_search_text(path) for path in bundled_check_paths()], "check"), columns)


def format_check_list(entries: Sequence[CheckListEntry], columns: int = 0) -> str:
    """By area, one entry a check: name, severity, claim; of at most ``columns``, 0: one line a check."""
    width = max((len(entry.name) for entry in entries), default=0)
    lines: list[str] = []
    for area, members in by_area(entries):
        lines += ["", localized(area)] if lines else [localized(area)]
        for entry in members:
            lines += columns_line(
                f"  {entry.name:<{width}}  {entry.severity:<7}  ", _printable(localized(entry.claim)), columns
            )
    return "\n".join(lines) + "\n"


def format_matches(entries: Sequence[CheckListEntry], columns: int = 0) -> str:
    """In the order given, one entry a check: name, severity, area, claim."""
    width = max((len(entry.name) for entry in entries), default=0)
    areas = max((len(entry.area) for entry in entries), default=0)
    lines: list[str] = []
    for entry in entries:
        head = f"{entry.name:<{width}}  {entry.severity:<7}  {entry.area:<{areas}}  "
        lines += columns_line(head, _printable(localized(entry.claim)), columns)
    return "\n".join(lines) + "\n"


def _printable(text: str) -> str:
    """A claim of a site's own check may hold anything."""
    if text.isprintable():
        return text
    from doctor.engine.sanitize import strip_control_chars

    return strip_control_chars(text)

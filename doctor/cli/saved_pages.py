"""Answers in English that are saved with the program: the help, the list of checks, the page of a check.

Light: each import of the standard library counts beside an answer of a few milliseconds. What is not saved, such as a
check that was changed since, is made by `doctor.cli.fast_list` and `doctor.cli.fast_explain`.
"""

from __future__ import annotations

import os

from doctor.engine.check_files import bundled_check_paths, bundled_path
from doctor.engine.language import is_plain_english

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

HELP = os.path.join(os.path.dirname(__file__), "help.txt")
"""Saved output of ``doctor --help``; a test fails when it is stale."""
PAGES = os.path.join(os.path.dirname(os.path.dirname(__file__)), "report", "explain", "pages.txt")
"""A line for each check: name, severity, area, claim and bytes of its file, between tabs; then for each a form feed,
its name, and its page, which is wrapped when shown."""
START = "\f"


def saved_answer(argv: list[str], environ: Mapping[str, str]) -> str | None:
    """What ``argv`` asks for, where it is saved and up to date."""
    if not is_plain_english(environ):
        return None
    if argv in (["--help"], ["-h"]):
        with open(HELP, encoding="utf-8") as file:
            return file.read()
    if argv == ["list"]:
        return _check_list()
    return _check_page(argv[1]) if argv[:1] == ["explain"] and len(argv) == 2 else None


def saved_rows() -> dict[str, list[str]]:
    """The fields of its line by name of the check; empty where the file is missing."""
    rows: dict[str, list[str]] = {}
    try:
        with open(PAGES, encoding="utf-8") as file:
            for line in file:
                if line.startswith(START):
                    break
                fields = line.rstrip("\n").split("\t")
                rows[fields[0]] = fields
    except OSError:
        pass
    return rows


def saved_page(name: str) -> str:
    """A check's page, for `doctor.report.layout.formatting.laid_out`."""
    with open(PAGES, "rb") as file:
        _, _, rest = file.read().partition(f"{START}{name}\n".encode())
    return rest.partition(START.encode())[0].decode()


def _check_list() -> str | None:
    rows = saved_rows()
    sizes = {os.path.basename(path)[:-3].replace("_", "-"): _size(path) for path in bundled_check_paths()}
    if sizes != {name: fields[-1] for name, fields in rows.items()}:
        return None
    from doctor.cli.fast_list import CheckListEntry, format_check_list
    from doctor.report.layout.terminal import terminal_columns

    entries = [CheckListEntry(*fields[:4]) for fields in rows.values()]
    return format_check_list(entries, terminal_columns())


def _size(path: str) -> str:
    return str(os.stat(path).st_size)


def _check_page(name: str) -> str | None:
    fields = saved_rows().get(name)
    path = os.path.join(bundled_path("checks"), f"{name.replace('-', '_')}.py")
    try:
        if not fields or not path.isprintable() or _size(path) != fields[-1]:
            return None
    except OSError:
        return None
    from doctor.report.layout.formatting import laid_out
    from doctor.report.layout.terminal import page_width

    return f"{laid_out(saved_page(name), page_width())}\nCheck file: {path}\n"

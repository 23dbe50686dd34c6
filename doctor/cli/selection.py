"""The checks that a command line chooses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from doctor.engine.areas import One
from doctor.engine.catalog import pick, with_roots
from doctor.engine.errors import InputError, UsageError

if TYPE_CHECKING:
    from doctor.engine.check import Check
    from doctor.remedy.playbook import Playbook

Sites = Annotated[list[Path], typer.Option("--checks", metavar="DIR", help="A folder with checks of your own.")]
Remedies = Annotated[
    list[Path], typer.Option("--playbooks", metavar="DIR", help="A folder with playbooks of your own.")
]
Names = Annotated[list[str], typer.Option("--select", "-s", metavar="NAME", help="Run only these checks or areas.")]
Not = Annotated[list[str], typer.Option("--ignore", metavar="NAME", help="Leave these checks or areas out.")]


@contextmanager
def loading(folders: Sequence[Path]) -> Iterator[None]:
    """Around the loading of checks: a folder or file that breaks the rules becomes one line."""
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"--checks {folder}: not a folder")
    try:
        yield
    except Exception as error:
        if type(error).__name__ != "BadCheck":  # its module is heavy, and loaded only if it was needed
            raise
        raise InputError(str(error)) from error


def playbooks(folders: Sequence[Path], checks: Sequence[Path]) -> list[Playbook]:
    """Every playbook: ours and those of ``folders``, which may treat the checks of a site too. Raises: CommandError."""
    from doctor.remedy.catalog import BadPlaybook, load

    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"--playbooks {folder}: not a folder")
    try:
        return load(folders, checks)
    except BadPlaybook as error:
        raise InputError(str(error)) from error


def catalogue(folders: Sequence[Path]) -> list[Check]:
    """Every check, loaded, its parameters understood. Raises: CommandError."""
    from doctor.engine.catalog import checks

    with loading(folders):
        found = checks(folders)
        for one in found:
            _ = one.needs
    return found


def chosen(known: Sequence[One], select: Sequence[str], ignore: Sequence[str] = (), roots: bool = False) -> list[One]:
    """Those of ``known`` that the words choose, with the root checks if asked. Raises: CommandError."""
    try:
        picked = pick(known, select, ignore)
    except LookupError as error:
        raise UsageError(str(error.args[0])) from None
    if not picked:
        raise InputError("--select and --ignore leave no check to run")
    return with_roots(picked, known, ignore) if roots else picked

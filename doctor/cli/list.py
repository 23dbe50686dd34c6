"""`doctor list`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from doctor.cli.fast_list import listing, skim
from doctor.cli.selection import Names, Not, Sites, catalogue, chosen, loading
from doctor.cli.selection import playbooks as every_playbook
from doctor.engine.catalog import files
from doctor.engine.errors import UsageError
from doctor.session.console import write


def command(
    folders: Annotated[
        list[Path], typer.Argument(metavar="[DIR]...", help="With --playbooks: folders with playbooks of your own.")
    ] = [],  # noqa: B006
    select: Names = [],  # noqa: B006
    ignore: Not = [],  # noqa: B006
    checks: Sites = [],  # noqa: B006
    playbooks: Annotated[bool, typer.Option("--playbooks", help="List the playbooks instead.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """List the checks: name, severity, and what is so when all is well."""
    if playbooks:
        return _playbooks(folders, select, ignore, checks, as_json)
    if folders:
        raise UsageError(f"{folders[0]}: unexpected; expected --playbooks before a folder")
    if as_json:
        from doctor.report.explain.checks import listing_json

        return write(listing_json(chosen(catalogue(checks), select, ignore)))
    with loading(checks):
        known = [skim(path) for path, _ in files(checks)]
    return write(listing(chosen(known, select, ignore)))


def _playbooks(folders: list[Path], select: list[str], ignore: list[str], checks: list[Path], as_json: bool) -> None:
    """Those that treat at least one of the checks that are chosen."""
    from doctor.report.explain.playbooks import playbook_list, playbook_list_json

    with loading(checks):
        known = [skim(path) for path, _ in files(checks)]
    names = {one.name for one in chosen(known, select, ignore)}
    found = [one for one in every_playbook(folders, checks) if names.intersection(one.treats)]
    write(playbook_list_json(found) if as_json else playbook_list(found) or "no playbook treats these checks\n")

"""`doctor list`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from doctor.cli.fast_list import format_check_list, read_list_entry
from doctor.cli.selection import ChecksOption, IgnoreOption, SelectOption
from doctor.engine.catalog import check_files
from doctor.engine.errors import UsageError
from doctor.session.console import write
from doctor.session.select_checks import (
    choose_checks,
    load_catalog,
    load_errors_as_input_errors,
    load_playbook_catalog,
)


def command(
    folders: Annotated[
        list[Path], typer.Argument(metavar="[DIR]...", help="With --playbooks: folders with playbooks of your own.")
    ] = [],  # noqa: B006
    select: SelectOption = [],  # noqa: B006
    ignore: IgnoreOption = [],  # noqa: B006
    checks: ChecksOption = [],  # noqa: B006
    playbooks: Annotated[bool, typer.Option("--playbooks", help="List the playbooks instead.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """List the checks or playbooks."""
    if playbooks:
        return _playbooks(folders, select, ignore, checks, as_json)
    if folders:
        raise UsageError(f"{folders[0]}: unexpected; expected --playbooks before a folder")
    if as_json:
        from doctor.report.explain.checks import listing_json

        return write(listing_json(choose_checks(load_catalog(checks), select, ignore)))
    with load_errors_as_input_errors(checks):
        entries = [read_list_entry(path) for path, _ in check_files(checks)]
    return write(format_check_list(choose_checks(entries, select, ignore)))


def _playbooks(folders: list[Path], select: list[str], ignore: list[str], checks: list[Path], as_json: bool) -> None:
    """Those that treat at least one of the checks that are chosen."""
    from doctor.report.explain.playbooks import playbook_list, playbook_list_json

    with load_errors_as_input_errors(checks):
        entries = [read_list_entry(path) for path, _ in check_files(checks)]
    names = {entry.name for entry in choose_checks(entries, select, ignore)}
    treating_playbooks = [
        playbook for playbook in load_playbook_catalog(folders, checks) if names.intersection(playbook.treats)
    ]
    write(
        playbook_list_json(treating_playbooks)
        if as_json
        else playbook_list(treating_playbooks) or "no playbook treats these checks\n"
    )

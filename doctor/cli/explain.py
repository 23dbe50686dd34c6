"""`doctor explain`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from doctor.cli.selection import ChecksOption, PlaybooksOption, load_errors_as_input_errors
from doctor.cli.selection import playbooks as every_playbook
from doctor.engine.areas import AREAS
from doctor.engine.catalog import check_files
from doctor.engine.errors import CommandError, UsageError
from doctor.session.console import write


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A check, as `doctor list` names it, or a playbook.")],
    checks: ChecksOption = [],  # noqa: B006
    playbooks: PlaybooksOption = [],  # noqa: B006
) -> None:
    """Explain a check or a playbook: why it matters, what to do, what runs on the hosts."""
    with load_errors_as_input_errors(checks):
        check_paths = {path.stem.replace("_", "-"): path for path, _ in check_files(checks)}
        remedies = every_playbook(playbooks, checks)
        if name in check_paths:
            from doctor.engine.catalog import load_check
            from doctor.remedy.catalog import playbooks_for
            from doctor.report.explain.checks import check_page

            return write(check_page(load_check(check_paths[name]), playbooks_for(remedies, name)))
    for playbook in remedies:
        if playbook.name == name:
            from doctor.report.explain.playbooks import playbook_page

            return write(playbook_page(playbook))
    raise _unknown_name(name, (*check_paths, *(remedy.name for remedy in remedies)))


def _unknown_name(name: str, known_names: Iterable[str]) -> CommandError:
    from doctor.config.file import did_you_mean
    from doctor.engine.sanitize import printable

    if name in AREAS:
        return UsageError(f"{name} is an area; `doctor list --select {name}` names its checks")
    lists = "; `doctor list` names the checks, `doctor list --playbooks` the playbooks"
    near = did_you_mean(name, list(known_names)) or lists
    return UsageError(f"no check or playbook is named '{printable(name, 100)}'{near}")

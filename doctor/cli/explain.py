"""`doctor explain`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from doctor.cli.selection import Remedies, Sites, loading
from doctor.cli.selection import playbooks as every_playbook
from doctor.engine.areas import AREAS
from doctor.engine.catalog import files
from doctor.engine.errors import CommandError, UsageError
from doctor.session.console import write


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A check, as `doctor list` names it, or a playbook.")],
    checks: Sites = [],  # noqa: B006
    playbooks: Remedies = [],  # noqa: B006
) -> None:
    """Explain a check or a playbook: why it matters, what to do, what runs on the hosts."""
    with loading(checks):
        found = {path.stem.replace("_", "-"): path for path, _ in files(checks)}
        remedies = every_playbook(playbooks, checks)
        if name in found:
            from doctor.engine.catalog import load
            from doctor.remedy.catalog import treating
            from doctor.report.explain.checks import page

            return write(page(load(found[name]), treating(remedies, name)))
    for one in remedies:
        if one.name == name:
            from doctor.report.explain.playbooks import playbook_page

            return write(playbook_page(one))
    raise _unknown(name, (*found, *(one.name for one in remedies)))


def _unknown(name: str, known: Iterable[str]) -> CommandError:
    from doctor.config.file import nearest
    from doctor.engine.sanitize import printable

    if name in AREAS:
        return UsageError(f"{name} is an area; `doctor list --select {name}` names its checks")
    lists = "; `doctor list` names the checks, `doctor list --playbooks` the playbooks"
    near = nearest(name, list(known)) or lists
    return UsageError(f"no check or playbook is named '{printable(name, 100)}'{near}")

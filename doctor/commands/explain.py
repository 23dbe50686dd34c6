"""`doctor explain`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from doctor.areas import AREAS
from doctor.catalogue import files
from doctor.cli import Refused, write
from doctor.commands.chosen import Remedies, Sites, loading
from doctor.commands.chosen import playbooks as every_playbook


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
            from doctor.catalogue import load
            from doctor.playbooks import treating
            from doctor.report.pages import page

            return write(page(load(found[name]), treating(remedies, name)))
    for one in remedies:
        if one.name == name:
            from doctor.report.playbook_pages import playbook_page

            return write(playbook_page(one))
    raise _unknown(name, (*found, *(one.name for one in remedies)))


def _unknown(name: str, known: Iterable[str]) -> Refused:
    from doctor.settings import nearest
    from doctor.wording import printable

    if name in AREAS:
        return Refused(f"{name} is an area; `doctor list --select {name}` names its checks", 2)
    lists = "; `doctor list` names the checks, `doctor list --playbooks` the playbooks"
    near = nearest(name, list(known)) or lists
    return Refused(f"no check or playbook is named '{printable(name, 100)}'{near}", 2)

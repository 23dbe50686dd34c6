"""`doctor explain`."""

from __future__ import annotations

from typing import Annotated

import typer

from doctor.catalogue import files
from doctor.cli import Refused, write
from doctor.commands.chosen import Sites, chosen, loading
from doctor.listing import skim


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A check, as `doctor list` names it.")],
    checks: Sites = [],  # noqa: B006
) -> None:
    """Explain a check: why it matters, what to do, what runs on the hosts."""
    with loading(checks):
        found = {path.stem.replace("_", "-"): path for path, _ in files(checks)}
        if name not in found:
            chosen([skim(path) for path in found.values()], [name])
            raise Refused(f"{name} is an area; `doctor list --select {name}` names its checks", 2)
        from doctor.catalogue import load
        from doctor.report.pages import page

        write(page(load(found[name])))

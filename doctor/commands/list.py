"""`doctor list`."""

from __future__ import annotations

from typing import Annotated

import typer

from doctor.catalogue import files
from doctor.cli import write
from doctor.commands.chosen import Names, Not, Sites, catalogue, chosen, loading
from doctor.listing import listing, skim


def command(
    select: Names = [],  # noqa: B006
    ignore: Not = [],  # noqa: B006
    checks: Sites = [],  # noqa: B006
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """List the checks: name, severity, and what is so when all is well."""
    if as_json:
        from doctor.report.pages import listing_json

        return write(listing_json(chosen(catalogue(checks), select, ignore)))
    with loading(checks):
        known = [skim(path) for path, _ in files(checks)]
    return write(listing(chosen(known, select, ignore)))

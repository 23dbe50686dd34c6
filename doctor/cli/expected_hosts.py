"""Expected hosts of a fleet that is checked without SSH (`doctor node` on each host, then `doctor merge`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from doctor.cli.host_options import ExcludeOption
from doctor.session.select_hosts import select_inventory

if TYPE_CHECKING:
    from doctor.environment.inventory import Inventory


class ExpectedHostOptions(NamedTuple):
    """The expected hosts."""

    expect: Annotated[
        str | None,
        typer.Option("--expect", "--hosts", metavar="NODES", help="The fleet, for example node[001-064],gpu7."),
    ] = None
    hostfile: Annotated[str | None, typer.Option(metavar="FILE", help="The fleet from a hostfile.")] = None
    rank_table: Annotated[str | None, typer.Option(metavar="FILE", help="The job's rank table; names the hosts.")] = (
        None
    )
    exclude: ExcludeOption = None


def expected_inventory(options: ExpectedHostOptions) -> Inventory | None:
    """The fleet, or None where neither the command line nor the environment names it. Raises: CommandError."""
    from doctor.environment.host_selection import HostSelection

    selection = HostSelection(options.expect, options.hostfile, options.rank_table, options.exclude)
    fleet = select_inventory(selection)
    return None if fleet.local else fleet

"""Expected hosts of a fleet that is checked without SSH (`doctor node` on each host, then `doctor merge`)."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec
import typer

from doctor.cli.host_options import ExcludeOption
from doctor.engine.errors import InputError
from doctor.engine.record import Run
from doctor.engine.texts import filled
from doctor.environment.inventory import Inventory, without
from doctor.hosts.nodeset import InventoryError
from doctor.hosts.selection import HostSelection
from doctor.session.select_hosts import select_inventory


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
    selection = HostSelection(options.expect, options.hostfile, options.rank_table, options.exclude)
    fleet = select_inventory(selection)
    return None if fleet.local else fleet


def without_excluded(run: Run, where: str, exclude: str | None) -> Run:
    """The run less the hosts that ``-x`` names, of a fleet that is known by its files alone. Raises: CommandError."""
    try:
        remaining = without(Inventory(tuple(run.hosts), filled("{0} from {1}", len(run.hosts), where)), exclude)
    except InventoryError as error:
        raise InputError(str(error)) from None
    return msgspec.structs.replace(run, hosts={host: run.hosts[host] for host in remaining.hosts})

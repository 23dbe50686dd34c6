"""`doctor rank-table`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from doctor.cli.host_options import Hosts, Product, Ways, inventory, refuse_product, refuse_ways, ssh_options
from doctor.cli.shared_options import device_numbers, spread
from doctor.engine.errors import CommandError
from doctor.session.console import write

if TYPE_CHECKING:
    from doctor.collect.fanout import Limits
    from doctor.engine.record import HostRecord
    from doctor.environment.inventory import Inventory
    from doctor.rank_table.build import Made
    from doctor.rank_table.build_parts import NotMade
    from doctor.transport.options import Options

UNNAMED = "rank_table.json"
"""Stands for the file that stdout is sent to, whose name is not known."""


@spread
def command(
    *,
    hosts: Hosts,
    out: Annotated[str, typer.Option(metavar="FILE", help="Write it there; else to stdout.")] = "",
    devices: Annotated[str, typer.Option(metavar="LIST", help="NPUs of each host, as in 0-3,6; else all.")] = "",
    product: Product = "",
    ways: Ways,
    sudo: Annotated[bool, typer.Option("--sudo", help="Read with sudo -n what only root can read.")] = False,
    timeout: Annotated[float, typer.Option(metavar="S", min=1, help="Seconds for a host's answer.")] = 60.0,
    budget: Annotated[float, typer.Option(metavar="S", min=0, help="Seconds for the whole run; 0 is none.")] = 0.0,
    workers: Annotated[int, typer.Option(metavar="N", min=0, help="Hosts at once; 0 chooses.")] = 0,
) -> None:
    """Make a rank table from what the hosts themselves say: checked, and whole or not at all.

    Hosts come from where `doctor check` takes them, and ranks follow their order, then the NPUs' numbers. Version 1.0
    for A1 and A2; 1.2, with super pods and SDIDs, for A3. Each server_id is the host's name as given here. The hosts
    must have the same NPUs; --devices chooses among them.

    Exit codes: 0 made; 10 not made: an NPU has no device IP, or the table would fail a check of rank tables; 12 not
    made: a host or an NPU could not be read, or the file not written; 2 usage, 70 a bug of doctor, 78 no hosts,
    130 and 143 interrupted.
    """
    refuse_product(product)
    refuse_ways(ways)
    chosen = device_numbers(devices)
    fleet, ssh = inventory(hosts), ssh_options(ways)
    from doctor.collect.fanout import Limits
    from doctor.transport.options import workers as usual

    limits = Limits(timeout, budget, workers or usual(len(fleet.hosts)))
    records = _visit(fleet, ways, ssh, sudo, limits)
    from doctor.engine.evaluate import Book
    from doctor.job import Launch
    from doctor.rank_table.build_parts import NotMade
    from doctor.rank_table.from_hosts import fresh

    launch = Launch.from_environment(os.environ, product=product)
    names = {host: record.visit.name for host, record in records.items()}
    try:
        made = fresh(fleet.hosts, Book(records).look, out or UNNAMED, launch, chosen, names)
    except NotMade as why:
        _refuse(why, len(fleet.hosts))
    _give(made, out)


def _visit(fleet: Inventory, ways: Ways, ssh: Options, sudo: bool, limits: Limits) -> dict[str, HostRecord]:
    """What the hosts say. What else is to be known of the visit goes to stderr."""
    from doctor.collect.fanout import Partial
    from doctor.collect.protocol import Ask, words
    from doctor.collect.rounds import rounds
    from doctor.rank_table.build import FACTS
    from doctor.report.layout.formatting import clean
    from doctor.report.layout.progress_line import Progress
    from doctor.session.output_files import complain
    from doctor.transport.open import open_transport

    progress = Progress(len(fleet.hosts), sys.stderr)
    transport = open_transport(fleet.local, ways.transport, ssh, fleet.hosts)
    ask = Ask(FACTS, {"hosts": list(fleet.hosts)}, sudo, tuple(words(ways.within)))
    try:
        records = rounds(fleet.hosts, transport, ask, limits, fleet.local, progress.step)
    except Partial as partial:
        raise partial.stop from None
    finally:
        transport.close()
        progress.close()
    for note in (*fleet.notes, *transport.warnings):
        complain(clean(note))
    return records


def _refuse(why: NotMade, hosts: int) -> NoReturn:
    """Says what stands against the table, and ends."""
    from doctor.session.output_files import complain

    for one in why.against:
        complain(one.text)
    blamed = len({one.host for one in why.against if one.host})
    where = f"on {blamed} of {hosts} host{'s' if hosts > 1 else ''}" if blamed else "with the table itself"
    said = "wrong" if why.wrong else "not known"
    complain(f"no rank table was made: something is {said} {where}")
    raise typer.Exit(10 if why.wrong else 12)


def _give(made: Made, out: str) -> None:
    """Writes the table whole or not at all. Raises: CommandError."""
    from doctor.config.atomic_write import write_whole
    from doctor.report.layout.formatting import clean, count
    from doctor.session.output_files import complain

    if out:
        try:
            write_whole(out, made.text.encode(), mode=0o644)
        except OSError as error:
            raise CommandError(f"--out {clean(out, 200)}: {error.strerror or error}; it was not written", 12) from None
    else:
        write(made.text)
    what = f"version {made.version}, {count(made.hosts, 'host')}, {count(made.npus, 'NPU')} of the {made.family} family"
    complain(f"rank table: {what}{f', in {clean(out, 200)}' if out else ''}")

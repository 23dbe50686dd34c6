"""`doctor rank-table`."""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import closing
from typing import Annotated, NoReturn

import typer

from doctor.cli.host_options import (
    ConnectionOptions,
    HostOptions,
    ProductOption,
    VisitOptions,
    ssh_options,
    validate_connection,
    validate_product,
)
from doctor.cli.shared_options import device_numbers, expand_option_groups
from doctor.collect.collector_request import CollectOptions
from doctor.collect.fanout import RunInterrupted, TimeLimits
from doctor.collect.rounds import run_rounds
from doctor.config.atomic_write import write_atomic
from doctor.engine.errors import CommandError
from doctor.engine.evaluate import FactCache
from doctor.engine.grouping import lists_by_key
from doctor.engine.pairwise_blame import folded
from doctor.engine.record import HostRecord
from doctor.engine.streams import write_stdout
from doctor.engine.texts import filled
from doctor.environment.inventory import Inventory
from doctor.job import LaunchConfig
from doctor.rank_table.build import REQUIRED_FACTS, BuiltRankTable, build_verified
from doctor.rank_table.build_parts import RankTableBuildError
from doctor.report.layout.formatting import clean, count_noun
from doctor.report.layout.progress_line import ProgressLine
from doctor.session.connection import connected
from doctor.session.named_files import require_writable
from doctor.session.output_files import print_warning
from doctor.session.select_hosts import select_inventory
from doctor.transport.options import workers as usual

PLACEHOLDER_NAME = "rank_table.json"
"""Placeholder for stdout when its file name is unknown."""


@expand_option_groups
def command(
    *,
    hosts: HostOptions,
    out: Annotated[str, typer.Option(metavar="FILE", help="Output file; default: stdout.")] = "",
    devices: Annotated[
        str, typer.Option(metavar="LIST", help="NPUs of each host, for example 0-3,6; default: all.")
    ] = "",
    product: ProductOption = "",
    connection: ConnectionOptions,
    visit: VisitOptions,
) -> None:
    """Generate a validated rank table from live hosts.

    Hosts come from the same sources as in `doctor check`. Ranks follow host order, then NPU numbers. Version 1.0
    for A1 and A2; 1.2, with super pods and SDIDs, for A3. Each server_id is the host's name as given here. The hosts
    must have the same NPUs; --devices chooses among them.

    Exit codes: 0 written; 10 not written: an NPU has no device IP, or the table would fail a rank table check; 12 not
    written: a host or an NPU could not be read; 2 usage, 70 a bug of doctor, 78 no hosts, or a file that cannot be
    written, 130 and 143 interrupted.
    """
    validate_product(product)
    validate_connection(connection)
    chosen = device_numbers(devices)
    if out:
        require_writable("--out", out)
    fleet = select_inventory(hosts.selection_by(connection))

    limits = TimeLimits(visit.timeout, visit.budget, visit.workers or usual(len(fleet.hosts)))
    records = _collect_records(fleet, connection, visit.sudo, limits)

    launch = LaunchConfig.from_environment(os.environ, product=product)
    names = {host: record.visit.name for host, record in records.items()}
    try:
        table = build_verified(fleet.hosts, FactCache(records).get, out or PLACEHOLDER_NAME, launch, chosen, names)
    except RankTableBuildError as why:
        _report_problems(why, len(fleet.hosts))
    _write_table(table, out)


def _collect_records(
    fleet: Inventory, connection: ConnectionOptions, sudo: bool, limits: TimeLimits
) -> dict[str, HostRecord]:
    """Reads the hosts; notes about the connections go to stderr."""
    ask = CollectOptions(REQUIRED_FACTS, {"hosts": list(fleet.hosts)}, sudo, tuple(shlex.split(connection.within)))
    with (
        connected(fleet, connection.transport, ssh_options(connection)) as transport,
        closing(ProgressLine(len(fleet.hosts), sys.stderr)) as progress,
    ):
        try:
            records = run_rounds(fleet.hosts, transport, ask, limits, fleet.local, progress.step)
        except RunInterrupted as partial:
            raise partial.interrupt from None
    for note in (*fleet.notes, *transport.warnings):
        print_warning(clean(note))
    return records


def _report_problems(error: RankTableBuildError, hosts: int) -> NoReturn:
    """Reports why no table is written, what several hosts have alike in one line, and exits."""
    alike = lists_by_key((problem.text.replace(problem.host or "\n", ""), problem) for problem in error.problems)
    for first, *others in alike.values():
        rest = folded([problem.host for problem in others])
        print_warning(filled("{0} (likewise on {1})", first.text, rest) if rest else first.text)
    blamed = len({cause.host for cause in error.problems if cause.host})
    where = filled("on {0} of {1} hosts", blamed, hosts) if blamed else "with the table itself"
    text = filled("something is wrong {0}", where) if error.wrong else filled("something is unknown {0}", where)
    print_warning(filled("no rank table was written: {0}", text))
    raise typer.Exit(10 if error.wrong else 12)


def _write_table(table: BuiltRankTable, out: str) -> None:
    """Writes the table atomically. Raises: CommandError."""
    if out:
        try:
            write_atomic(out, table.text.encode(), mode=0o644)
        except OSError as error:
            raise CommandError(
                filled("--out {0}: {1}; it was not written", clean(out, 200), error.strerror or error), 12
            ) from None
    else:
        write_stdout(table.text)
    sizes = filled(
        "{0}, {1} of the {2} family", count_noun(table.hosts, "host"), count_noun(table.npus, "NPU"), table.family
    )
    summary = filled("version {0}, {1}", table.version, sizes)
    print_warning(filled("rank table: {0}{1}", summary, filled(", in {0}", clean(out, 200)) if out else ""))

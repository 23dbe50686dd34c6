"""`doctor check`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from doctor.cli.host_options import Hosts, Job, Product, Ways, inventory, refuse_product, refuse_ways, ssh_options
from doctor.cli.selection import Names, Not, Sites, catalogue, chosen
from doctor.cli.shared_options import spread
from doctor.engine.errors import InputError, UsageError
from doctor.session.finish import Output, again, finish, refuse_output, saved, watch
from doctor.session.output_files import both

if TYPE_CHECKING:
    from doctor.engine.check import Check
    from doctor.environment.inventory import Inventory


@spread
def command(
    *,
    hosts: Hosts,
    no_hosts: Annotated[bool, typer.Option("--no-hosts", help="Visit no host: judge the rank table alone.")] = False,
    smoke: Annotated[bool, typer.Option("--smoke", help="Then train on the hosts, as `doctor smoke` does.")] = False,
    select: Names = [],  # noqa: B006 - typer's way
    ignore: Not = [],  # noqa: B006
    checks: Sites = [],  # noqa: B006
    job: Job,
    product: Product = "",
    ways: Ways,
    sudo: Annotated[bool, typer.Option("--sudo", help="Read with sudo -n what only root can read.")] = False,
    timeout: Annotated[float, typer.Option(metavar="S", min=1, help="Seconds for a host's answer.")] = 60.0,
    budget: Annotated[float, typer.Option(metavar="S", min=0, help="Seconds for the whole run; 0 is none.")] = 0.0,
    workers: Annotated[int, typer.Option(metavar="N", min=0, help="Hosts at once; 0 chooses.")] = 0,
    output: Output,
) -> None:
    """Check hosts: read each one over SSH, judge, report.

    Hosts come from the first of: HOSTS, --hostfile, --rank-table, DOCTOR_HOSTS, DOCTOR_HOSTFILE, SLURM_JOB_NODELIST,
    RANK_TABLE_FILE; else this host alone.

    Exit codes: 0 healthy, 10 failed, 11 warnings (--strict), 12 unknown, 2 usage, 70 a bug of doctor, 78 nothing to
    check or unreadable input, 130 and 143 interrupted.
    """
    refuse_product(product)
    refuse_ways(ways)
    refuse_output(output, checks)
    if smoke and no_hosts:
        raise UsageError("--smoke needs hosts to train on; expected it without --no-hosts")
    known = catalogue(checks)
    if output.from_file:
        run = saved(output.from_file)
        again(run, _chosen(known, select, ignore, smoke or bool(run.smoke)), known, output)
    picked = _chosen(known, select, ignore, smoke)
    fleet = _without_hosts(hosts) if no_hosts else inventory(hosts)
    from doctor.report.layout.progress_line import Progress
    from doctor.session.examine import Options, examine
    from doctor.smoke.plan import Wish

    options = Options(
        transport=ways.transport,
        ssh=ssh_options(ways),
        sudo=sudo,
        within=ways.within,
        timeout=timeout,
        budget=budget,
        workers=workers,
        launch={"product": product, **job.launch} if product else job.launch,
        smoke=Wish(**job._asdict()) if smoke else None,
    )
    progress, events = Progress(len(fleet.hosts), sys.stderr), watch(output, fleet.hosts, picked, fleet.source)
    try:
        done = examine(
            fleet,
            picked,
            options,
            os.environ,
            rank_table=hosts.rank_table or "",
            progress=both(progress.step, events.host),
            stage=both(progress.stage, events.stage),
        )
    finally:
        progress.close()
    finish(done, known, output, events)


def _chosen(known: list[Check], select: list[str], ignore: list[str], smoke: bool) -> list[Check]:
    """With a smoke run always with its checks; without one, only those selected. Raises: CommandError."""
    if smoke:
        return chosen(known, [*select, "smoke"] if select else [], ignore, roots=True)
    return chosen(known, select, ignore if select else [*ignore, "smoke"], roots=True)


def _without_hosts(hosts: Hosts) -> Inventory:
    """What is left to judge when no host is visited. Raises: CommandError."""
    from doctor.environment.inventory import Inventory
    from doctor.job.launch_config import TABLE_VARIABLES

    if not (hosts.rank_table or any(os.environ.get(name) for name in TABLE_VARIABLES)):
        raise InputError("--no-hosts leaves nothing to check; expected --rank-table FILE with it")
    return Inventory((), "no host was looked at")

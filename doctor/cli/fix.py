"""`doctor fix`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from doctor.cli.host_options import (
    Exclude,
    Hostfile,
    Hosts,
    Job,
    Product,
    Table,
    Ways,
    inventory,
    refuse_product,
    refuse_ways,
)
from doctor.cli.selection import Remedies, Sites
from doctor.cli.shared_options import spread
from doctor.engine.errors import UsageError, require_one_of

if TYPE_CHECKING:
    from doctor.engine.record import Run
    from doctor.fix.context import How


class Where(NamedTuple):
    """Which hosts."""

    hosts: Annotated[
        str | None, typer.Option("--hosts", "-w", metavar="NODES", help="Hosts, as in node[001-064],gpu7.")
    ] = None
    hostfile: Hostfile = None
    rank_table: Table = None
    exclude: Exclude = None


class Deed(NamedTuple):
    """What is to be done."""

    apply: Annotated[bool, typer.Option("--apply", help="Apply the plan: a new one, or the saved PLAN.")] = False
    undo: Annotated[str, typer.Option("--undo", metavar="PLAN", help="Take back what an applied plan did.")] = ""
    list_plans: Annotated[bool, typer.Option("--list", help="List the saved plans, and what became of them.")] = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
    force: Annotated[bool, typer.Option("--force", help="Also hosts in use; with --undo also files changed since.")] = (
        False
    )
    batch: Annotated[int, typer.Option(metavar="N", min=1, help="Hosts at a time, after the first alone.")] = 8


class Shown(NamedTuple):
    """How it is told."""

    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False
    color: Annotated[str, typer.Option(metavar="auto|always|never", help="Colour.")] = "auto"
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Every step, also those left out; whole diffs.")] = (
        False
    )
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback of our own bugs.")] = False


@spread
def command(
    *,
    names: Annotated[
        list[str], typer.Argument(metavar="[NAME|PLAN]...", help="Checks, areas or playbooks; or one saved plan.")
    ] = [],  # noqa: B006 - typer's way
    where: Where,
    deed: Deed,
    playbooks: Remedies = [],  # noqa: B006
    checks: Sites = [],  # noqa: B006
    job: Job,
    product: Product = "",
    ways: Ways,
    sudo: Annotated[bool, typer.Option("--sudo", help="Read with sudo -n what only root can read.")] = False,
    timeout: Annotated[float, typer.Option(metavar="S", min=1, help="Seconds for a host's answer.")] = 60.0,
    from_file: Annotated[Path | None, typer.Option("--from", metavar="FILE", help="Plan from a saved run.")] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Waivers, instead of doctor.toml.")] = None,
    shown: Shown,
) -> None:
    """Mend what checks find: a plan first; with --apply the mending, proven by the same checks.

    Without --apply and --undo nothing changes: the hosts are checked, and a plan is shown and saved. Steps that need
    root are made by root itself, or through sudo -n. Hosts that a job uses are left alone without --force.

    Exit codes: 0 all that was found is planned, or mended and proven; 10 something is not mended; 12 unknown, 2 usage,
    70 a bug of doctor, 78 nothing to look at or unreadable input, 130 and 143 interrupted.
    """
    _refuse(names, deed, ways, product, shown)
    from doctor.cli import fix_apply, fix_undo

    if deed.list_plans:
        raise typer.Exit(fix_undo.list_plans(shown))
    if deed.undo:
        raise typer.Exit(fix_undo.undo(deed, ways, shown))
    if _is_plan(names):
        raise typer.Exit(fix_apply.saved(names[0], deed, ways, shown))
    run = _run(from_file) if from_file else None
    how = _how(run, Hosts(None, *where), job, product, ways)
    from msgspec.structs import replace

    how = replace(
        how,
        names=tuple(names),
        playbooks=tuple(str(path.absolute()) for path in playbooks),
        checks=tuple(str(path.absolute()) for path in checks),
        config=str(config.absolute()) if config else "",
        sudo=sudo,
        timeout=timeout,
    )
    raise typer.Exit(fix_apply.fresh(how, run, deed, ways, shown))


def _refuse(names: list[str], deed: Deed, ways: Ways, product: str, shown: Shown) -> None:
    require_one_of("--color", shown.color, ("auto", "always", "never"))
    refuse_product(product)
    refuse_ways(ways)
    if ways.transport not in ("ssh", "openssh"):
        raise UsageError(f"--transport {ways.transport} brings answers, not changes; expected ssh or openssh")
    if sum((deed.apply, bool(deed.undo), deed.list_plans)) > 1:
        raise UsageError("--apply, --undo and --list are three things; expected one of them")
    if names and (deed.undo or deed.list_plans):
        raise UsageError("--undo and --list take no NAME")
    if (deed.apply or deed.undo) and not deed.yes and not sys.stdin.isatty():
        raise UsageError("there is no terminal to ask on; expected --yes")
    if len(names) > 1 and any(_is_plan([name]) for name in names):
        raise UsageError("a saved plan is whole; expected no NAME beside it")


def _is_plan(names: list[str]) -> bool:
    from doctor.fix.store import ID

    return len(names) == 1 and ID.fullmatch(names[0]) is not None


def _run(path: Path) -> Run:
    from doctor.session.finish import saved

    return saved(path)


def _how(run: Run | None, hosts: Hosts, job: Job, product: str, ways: Ways) -> How:
    """What is looked at, and with which job in mind. Raises: CommandError."""
    from doctor.fix.context import How

    kept = {name: value for name, value in ways._asdict().items() if name != "ask_pass"}
    for name in ("ssh_config",):
        kept[name] = os.path.abspath(kept[name]) if kept[name] not in ("", "none") else kept[name]
    kept["identity"] = [os.path.abspath(os.path.expanduser(name)) for name in kept["identity"]]
    if run is not None:
        launch = dict(run.launch)
        environ, table = launch.pop("environ", {}), launch.pop("rank_table", "")
        local = bool(run.hosts) and all(one.visit.local and not one.visit.trouble for one in run.hosts.values())
        return How(
            hosts=tuple(run.hosts),
            source=run.source,
            local=local,
            launch=launch,
            environ=environ,
            rank_table=table,
            ways=kept,
        )
    from doctor.job.launch_config import relevant

    fleet = inventory(hosts)
    return How(
        hosts=fleet.hosts,
        source=fleet.source,
        local=fleet.local,
        slots=fleet.slots,
        launch={"product": product, **job.launch} if product else job.launch,
        environ=relevant(os.environ),
        rank_table=os.path.abspath(hosts.rank_table) if hosts.rank_table else "",
        ways=kept,
    )

"""`doctor fix`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from doctor.cli import fix_apply, fix_undo
from doctor.cli.fix_plans import DisplayOptions, FixAction, FixHostOptions
from doctor.cli.host_options import (
    DEFAULT_TIMEOUT,
    ConnectionOptions,
    HostOptions,
    JobOptions,
    ProductOption,
    SudoOption,
    TimeoutOption,
    validate_connection,
    validate_product,
)
from doctor.cli.shared_options import ChecksOption, ConfigOption, PlaybooksOption, expand_option_groups
from doctor.engine.errors import UsageError, require_one_of
from doctor.engine.record import Run
from doctor.engine.texts import filled
from doctor.fix.plan import PlanContext
from doctor.fix.store import PLAN_ID
from doctor.job.variables import relevant
from doctor.session.finish import load_saved_run
from doctor.session.select_hosts import select_inventory


@expand_option_groups
def command(
    *,
    names: Annotated[
        list[str], typer.Argument(metavar="[NAME|PLAN]...", help="Checks, areas or playbooks, or one saved plan.")
    ] = [],  # noqa: B006 - typer's way
    where: FixHostOptions,
    action: FixAction,
    playbooks: PlaybooksOption = [],  # noqa: B006
    checks: ChecksOption = [],  # noqa: B006
    job: JobOptions,
    product: ProductOption = "",
    connection: ConnectionOptions,
    sudo: SudoOption = False,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
    from_file: Annotated[Path | None, typer.Option("--from", metavar="FILE", help="Plan from a saved run.")] = None,
    config: ConfigOption = None,
    display: DisplayOptions,
) -> None:
    """Plan fixes for findings; with --apply, run and verify them.

    Without --apply or --undo nothing changes: the hosts are checked, and a plan is shown and saved. Steps that need
    root run as root or through sudo -n. Hosts in use by a job are left unchanged unless --force is given.

    Exit codes: 0 every finding is planned, or fixed and verified; 10 a finding is not fixed; 12 unknown, 2 usage,
    70 a bug of doctor, 78 nothing to check or unreadable input, 130 and 143 interrupted.
    """
    _validate_options(names, action, connection, product, display)
    _validate_hosts(names, where, action, from_file)

    if action.list_plans:
        raise typer.Exit(fix_undo.list_plans(display))
    if action.undo:
        raise typer.Exit(fix_undo.undo(action, connection, display))
    if _is_plan_id(names):
        saved = fix_apply.SavedPlan(names[0], where.exclude)
        raise typer.Exit(fix_apply.show_or_apply_saved(saved, action, connection, display))
    run = load_saved_run(from_file) if from_file else None
    context = _plan_context(run, HostOptions(None, *where), job, product, connection)

    context = replace(
        context,
        names=tuple(names),
        playbooks=tuple(str(path.absolute()) for path in playbooks),
        checks=tuple(str(path.absolute()) for path in checks),
        config=str(config.absolute()) if config else "",
        sudo=sudo,
        timeout=timeout,
    )
    raise typer.Exit(fix_apply.plan_and_apply(context, run, action, connection, display))


def _validate_options(
    names: list[str], action: FixAction, connection: ConnectionOptions, product: str, display: DisplayOptions
) -> None:
    require_one_of("--color", display.color, ("auto", "always", "never"))
    require_one_of("--changed", action.changed, ("refuse", "merge", "skip", "overwrite"))
    if action.changed != "refuse" and not action.undo:
        raise UsageError("--changed is for --undo alone")
    validate_product(product)
    validate_connection(connection)
    if connection.transport not in ("ssh", "openssh"):
        raise UsageError(filled("--transport {0} cannot change hosts; expected ssh or openssh", connection.transport))
    if sum((action.apply, bool(action.undo), action.list_plans)) > 1:
        raise UsageError("--apply, --undo and --list exclude each other; expected one of them")
    if names and (action.undo or action.list_plans):
        raise UsageError("--undo and --list take no NAME")
    if len(names) > 1 and any(_is_plan_id([name]) for name in names):
        raise UsageError("a saved plan takes no further NAME; expected the plan alone")


def _validate_hosts(names: list[str], where: FixHostOptions, action: FixAction, from_file: Path | None) -> None:
    """Raises: UsageError for hosts where a saved plan has them: an option that would be ignored may be relied on."""
    plan = "--list" if action.list_plans else "--undo" if action.undo else names[0] if _is_plan_id(names) else ""
    if not plan:
        return
    given: dict[str, object] = {"--hosts": where.hosts, "--hostfile": where.hostfile, "--rank-table": where.rank_table}
    given["--from"] = from_file
    if plan.startswith("--"):
        given["--exclude"] = where.exclude
    named = [option for option, value in given.items() if value is not None]
    if named and plan.startswith("--"):
        raise UsageError(filled("{0} takes no {1}", plan, named[0]))
    if named:
        raise UsageError(
            filled("the plan {0} has its hosts and takes no {1}; --exclude leaves hosts out", plan, named[0])
        )


def _is_plan_id(names: list[str]) -> bool:
    return len(names) == 1 and PLAN_ID.fullmatch(names[0]) is not None


def _plan_context(
    run: Run | None, hosts: HostOptions, job: JobOptions, product: str, connection: ConnectionOptions
) -> PlanContext:
    """The hosts, the job and the connection that a plan is made for. Raises: CommandError."""
    connection_fields = {name: value for name, value in connection._asdict().items() if name != "ask_pass"}
    paths = [name for name in ("ssh_config", "gateways", "kubeconfig") if connection_fields[name] not in ("", "none")]
    connection_fields |= {name: os.path.abspath(connection_fields[name]) for name in paths}
    connection_fields["identity"] = [
        os.path.abspath(os.path.expanduser(name)) for name in connection_fields["identity"]
    ]
    if run is not None:
        local = bool(run.hosts) and all(
            record.visit.local and not record.visit.failure for record in run.hosts.values()
        )
        return PlanContext(
            hosts=tuple(run.hosts),
            source=run.source,
            local=local,
            launch=replace(run.launch, environ={}, rank_table=""),
            environ=run.launch.environ,
            rank_table=run.launch.rank_table,
            connection=connection_fields,
        )

    fleet = select_inventory(hosts.selection)
    return PlanContext(
        hosts=fleet.hosts,
        source=fleet.source,
        local=fleet.local,
        slots=fleet.slots,
        logins=fleet.logins,
        launch=job.launch(product),
        environ=relevant(os.environ),
        rank_table=os.path.abspath(hosts.rank_table) if hosts.rank_table else "",
        connection=connection_fields,
    )

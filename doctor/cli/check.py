"""`doctor check`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from doctor.cli.host_options import (
    SCOPES,
    ConnectionOptions,
    HostOptions,
    JobOptions,
    ProductOption,
    ScopeOption,
    VisitOptions,
    connection_words,
    examine_options,
    validate_connection,
    validate_product,
)
from doctor.cli.launch_source import SourceOptions, job_targets
from doctor.cli.shared_options import (
    CheckOptions,
    NoHistoryOption,
    OutputOptions,
    expand_option_groups,
    history_options,
)
from doctor.engine.catalog import ON_REQUEST
from doctor.engine.errors import InputError, UsageError, require_one_of
from doctor.engine.result import NO_HOST
from doctor.engine.texts import filled
from doctor.job.variables import TABLE_VARIABLES
from doctor.session.finish import examine_and_report, load_saved_run, replay_and_report, validate_output
from doctor.session.select_checks import choose_with_rounds, load_catalog, made_rounds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from doctor.engine.check import Check
    from doctor.engine.record import LaunchOptions
    from doctor.environment.inventory import Inventory
    from doctor.net.plan import NetOptions
    from doctor.smoke.plan import SmokeOptions


@expand_option_groups
def command(
    *,
    hosts: HostOptions,
    scope: ScopeOption = "auto",
    no_hosts: Annotated[
        bool, typer.Option("--no-hosts", help="Check only the rank table; connect to no host.")
    ] = False,
    compare: Annotated[
        str, typer.Option("--compare", metavar="all", help="Also compare sysctls, packages, environment and firmware.")
    ] = "",
    net: Annotated[
        str, typer.Option("--net", metavar="quick|full|off", help="Also have the hosts try their network (doctor net).")
    ] = "off",
    path: Annotated[
        list[str],
        typer.Option(metavar="PATH", help="Also compare the content of this file or folder among hosts; repeatable."),
    ] = [],  # noqa: B006
    smoke: Annotated[bool, typer.Option("--smoke", help="Also run the training test of `doctor smoke`.")] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Show the hosts on the terminal while they answer; q closes the view.")
    ] = False,
    after_reboot: Annotated[
        bool,
        typer.Option("--after-reboot", help="Judge the hosts as after a reboot, by what they load when they start."),
    ] = False,
    choice: CheckOptions,
    job: JobOptions,
    source: SourceOptions,
    product: ProductOption = "",
    connection: ConnectionOptions,
    visit: VisitOptions,
    output: OutputOptions,
    no_history: NoHistoryOption = False,
) -> None:
    """Check hosts over SSH and report what is wrong.

    Hosts come from the first of: HOSTS, --hostfile, --rank-table, DOCTOR_HOSTS, DOCTOR_HOSTFILE, SLURM_JOB_NODELIST,
    RANK_TABLE_FILE; else this host alone. Where the job has hosts that none of these lists, the run is unknown.

    Exit codes: 0 healthy, 10 failed, 11 warnings (--strict), 12 unknown, 2 usage, 70 a bug of doctor, 78 nothing to
    check or unreadable input, 130 and 143 interrupted.
    """
    validate_product(product)
    validate_connection(connection)
    validate_output(output, choice.checks)
    require_one_of("--scope", scope, SCOPES)
    if compare not in ("", "all"):
        raise UsageError(filled("--compare {0}: expected all", f"{compare!r}"))
    require_one_of("--net", net, ("quick", "full", "off"))
    if net != "off" and no_hosts:
        raise UsageError("--net needs hosts that try their network; expected it without --no-hosts")
    paths = _absolute(path)
    if smoke and no_hosts:
        raise UsageError("--smoke needs hosts to train on; expected it without --no-hosts")
    if after_reboot and (smoke or net != "off" or compare or paths or no_hosts or connection.within):
        raise UsageError(
            "--after-reboot reads files of hosts; expected no --smoke, --net, --compare, --path or --within"
        )
    catalog = load_catalog(choice.checks)
    if output.from_file:
        run = load_saved_run(output.from_file)
        if after_reboot and not run.after_reboot:
            raise UsageError("--after-reboot: the saved run has not read what its hosts load when they start")
        requested = (*_requested(compare, paths), *(name for name in ON_REQUEST if name in run.checks))
        rounds = made_rounds(smoke or bool(run.smoke), net != "off" or run.tried_network, bool(run.watch))
        selected = choose_with_rounds(catalog, choice.select, choice.ignore, rounds, requested)
        reached_by = connection_words(connection, visit)
        named = bool(choice.select)
        raise typer.Exit(replay_and_report(run, selected, catalog, output, named=named, connection=reached_by))
    from doctor.session.run_history import keeps_settings
    from doctor.session.training_files import with_launch_line

    rounds = made_rounds(smoke, net != "off")
    selected = choose_with_rounds(catalog, choice.select, choice.ignore, rounds, _requested(compare, paths))
    job_environment = source.read()
    environ = job_environment.environ
    fleet = _empty_inventory(hosts) if no_hosts else None
    inventory, launch, within = job_targets(job_environment, hosts, scope, job, connection, product, fleet)
    history = history_options("check", output, no_history)
    reads_settings = bool(compare) or keeps_settings(history)
    options = replace(
        examine_options(connection, visit, launch, within),
        paths=paths,
        net=_network_options(net, selected) if net != "off" else None,
        smoke=_smoke_options(launch, environ) if smoke else None,
        after_reboot=after_reboot,
        reads_settings=reads_settings,
    )
    options = with_launch_line(options, job_environment, source.job_script)
    table = hosts.rank_table or ""
    raise typer.Exit(
        examine_and_report(inventory, selected, options, environ, table, catalog, output, history, live=live)
    )


def _network_options(mode: str, selected: Iterable[Check]) -> NetOptions:
    from doctor.net.plan import NetOptions, tries_devices

    return NetOptions(mode="full" if mode == "full" else "quick", devices=tries_devices(selected))


def _smoke_options(launch: LaunchOptions, environ: Mapping[str, str]) -> SmokeOptions:
    from doctor.smoke.plan import options_of_launch

    return options_of_launch(launch, environ)


MAX_PATHS = 64


def _absolute(paths: list[str]) -> tuple[str, ...]:
    """The paths of ``--path``. Raises: UsageError."""
    for path in paths:
        if not path.startswith("/") or "\0" in path:
            raise UsageError(
                filled("--path {0}: expected an absolute path, which is the same on every host", f"{path!r}")
            )
    if len(paths) > MAX_PATHS:
        raise UsageError(filled("--path: {0} paths; expected at most {1}", len(paths), MAX_PATHS))
    return tuple(dict.fromkeys(paths))


def _requested(compare: str, paths: tuple[str, ...]) -> tuple[str, ...]:
    return (*(["host-snapshot-differs"] if compare else []), *(["job-path-differs"] if paths else []))


def _empty_inventory(hosts: HostOptions) -> Inventory:
    """The inventory of a check of the rank table alone. Raises: CommandError."""
    from doctor.environment.inventory import Inventory
    from doctor.session.named_files import require_rank_table

    require_rank_table(hosts.rank_table)
    if not (hosts.rank_table or any(os.environ.get(name) for name in TABLE_VARIABLES)):
        raise InputError("--no-hosts leaves nothing to check; expected --rank-table FILE with it")
    return Inventory((), NO_HOST)

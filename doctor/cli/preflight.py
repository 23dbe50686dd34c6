"""`doctor preflight`."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec
import typer

from doctor.cli.host_options import (
    ConnectionOptions,
    HostOptions,
    JobOptions,
    ProductOption,
    SudoOption,
    ssh_options,
    validate_connection,
    validate_product,
)
from doctor.cli.launch_source import SourceOptions, with_hosts_of_line
from doctor.cli.shared_options import (
    CheckOptions,
    ConfigOption,
    DebugOption,
    FailOnOption,
    NoHistoryOption,
    OnUnknownOption,
    StrictOption,
    expand_option_groups,
    time_option,
)
from doctor.engine.errors import UsageError, require_one_of
from doctor.engine.record import LaunchOptions
from doctor.engine.texts import filled
from doctor.environment.gang_place import MAX_SIZE
from doctor.preflight.early_end import BUDGET, GANG_WAIT
from doctor.preflight.node_lists import FORMATS, format_conflict
from doctor.preflight.options import STYLES, TIERS, ExitCodePolicy, GangOptions, PreflightOptions
from doctor.session.output_files import output_conflict, print_warning, requested_targets


class LimitOptions(NamedTuple):
    """Options for tier, time limit and scope."""

    tier: Annotated[str, typer.Option("--tier", "-t", metavar="|".join(TIERS), help="Check tier.")] = ""
    budget: Annotated[
        str,
        typer.Option(metavar="TIME", help="Hard time limit, for example 90s or 2m; default by tier: 20s, 60s, 180s."),
    ] = ""
    scope: Annotated[
        str, typer.Option(metavar="auto|local|cluster", help="This host or all hosts; auto: by launcher.")
    ] = "auto"
    net: Annotated[
        str, typer.Option("--net", metavar="quick|full|off", help="Network test between the hosts; default: by tier.")
    ] = ""
    profile: Annotated[
        str, typer.Option(metavar="job|prolog", help="prolog: quick check of this host; only its faults fail.")
    ] = "job"


class PodGangOptions(NamedTuple):
    """Pods of one job that check each other."""

    gang: Annotated[
        str | None,
        typer.Option(
            metavar="N|auto", help="The job's N pods run this and check each other; one verdict.", show_default=False
        ),
    ] = None
    gang_key: Annotated[
        str, typer.Option(metavar="FILE|none", help="The pods' common secret; else DOCTOR_GANG_KEY. none: addresses.")
    ] = ""
    gang_wait: Annotated[str, typer.Option(metavar="TIME", help="For all pods to come; default 5m.")] = ""

    def read(self) -> GangOptions | None:
        """Raises: UsageError."""
        if self.gang is None:
            if self.gang_key or self.gang_wait:
                raise UsageError("--gang-key and --gang-wait belong to --gang; expected --gang N or --gang auto")
            return None
        is_number = self.gang.isascii() and self.gang.isdecimal() and 1 <= len(self.gang) <= 5
        if self.gang != "auto" and (not is_number or not 1 <= int(self.gang) <= MAX_SIZE):
            raise UsageError(
                filled("--gang {0}: expected the number of pods, 1 to {1}, or auto", f"{self.gang!r}", MAX_SIZE)
            )
        wait = time_option("--gang-wait", self.gang_wait, GANG_WAIT)
        return GangOptions(0 if self.gang == "auto" else int(self.gang), self.gang_key, wait)


class SpareOptions(NamedTuple):
    """Hosts to go on with."""

    need: Annotated[
        int, typer.Option(metavar="N", min=0, help="Minimum number of healthy hosts.", show_default=False)
    ] = 0
    write_nodes: Annotated[str, typer.Option(metavar="FILE", help="Write the list of healthy hosts.")] = ""
    write_bad: Annotated[str, typer.Option(metavar="FILE", help="Write the list of bad and unknown hosts.")] = ""
    node_format: Annotated[str, typer.Option(metavar="FORMAT", help=f"Format of both lists: {', '.join(FORMATS)}.")] = (
        "plain"
    )


class ReportingOptions(NamedTuple):
    """Options of the output and the exit code."""

    report: Annotated[str, typer.Option(metavar="FILE", help="Write the report as JSON.")] = ""
    formats: Annotated[
        list[str], typer.Option("--format", "-f", metavar="FORMAT=FILE", help="Also write the report in this format.")
    ] = []
    redact: Annotated[bool, typer.Option("--redact", help="Replace hosts and addresses by pseudonyms.")] = False
    save: Annotated[str, typer.Option(metavar="FILE", help="Save the raw outputs, for --from.")] = ""
    config: ConfigOption = None
    no_history: NoHistoryOption = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the one line.")] = False
    strict: StrictOption = False
    fail_on: FailOnOption = "error"
    on_unknown: OnUnknownOption = "fail"
    fail_exit: Annotated[int, typer.Option(metavar="N", min=0, max=255, help="Exit code instead of 10, 11 and 12.")] = 0
    exit_style: Annotated[str, typer.Option(metavar="doctor|nagios|npd", help="Meaning of exit codes.")] = "doctor"
    debug: DebugOption = False


SAME_OPTIONS = {"report", "redact", "save", "config", "quiet", "strict", "fail_on", "on_unknown"}
"""Of `ReportingOptions`, those that `PreflightOptions` has under the same name."""
REPORT_MARGIN = 5.0
"""Seconds between the end of the budget and that of the job."""


@expand_option_groups
def command(
    *,
    hosts: HostOptions,
    bounds: LimitOptions,
    gang: PodGangOptions,
    spares: SpareOptions,
    choice: CheckOptions,
    job: JobOptions,
    source: SourceOptions,
    product: ProductOption = "",
    connection: ConnectionOptions,
    sudo: SudoOption = False,
    reporting: ReportingOptions,
) -> None:
    """Gate a job: one line, one exit code, bounded time.

    Detects the launcher and the job's hosts. A single process checks all hosts; started on every host or rank (srun,
    mpirun, torchrun), one process per host checks that host, and rank 0 evaluates the fleet.

    Exit codes: as `doctor check`; only 0 means that the job may start.
    """
    from doctor.preflight.run import run_preflight

    validate_product(product)
    options = _preflight_options(hosts, bounds, spares, job.launch(product), connection, reporting, choice, sudo)
    options = _with_gang(options, gang.read())
    read = source.read(is_next=not options.hosts.names_hosts)
    options = within_time_left(options, read.time_left_s)
    if read.label:
        selection = with_hosts_of_line(options.hosts, read)
        options = msgspec.structs.replace(options, source=read, job_script=source.job_script or "", hosts=selection)
    raise typer.Exit(run_preflight(options))


def _preflight_options(
    hosts: HostOptions,
    bounds: LimitOptions,
    spares: SpareOptions,
    launch: LaunchOptions,
    connection: ConnectionOptions,
    reporting: ReportingOptions,
    choice: CheckOptions,
    sudo: bool,
) -> PreflightOptions:
    validate_connection(connection)
    if connection.transport == "kubernetes":
        raise UsageError("--transport kubernetes reaches pods from outside; expected doctor check with it")
    _validate_options(bounds, spares, reporting)
    prolog = bounds.profile == "prolog"
    if prolog and bounds.scope == "auto" and hosts.selection.names_hosts:
        print_warning("--profile prolog checks this host alone; the hosts that were named are not checked")
    tier = bounds.tier or ("quick" if prolog else "standard")
    return PreflightOptions(
        hosts=hosts.selection,
        ssh=ssh_options(connection, verify=False),  # in the run, which has its line to print
        transport=connection.transport,
        within=connection.within,
        sudo=sudo,
        tier=tier,  # type: ignore[arg-type]
        budget=time_option("--budget", bounds.budget, BUDGET[tier]),
        scope="local" if prolog and bounds.scope == "auto" else bounds.scope,  # type: ignore[arg-type]
        launch=launch,
        net=bounds.net,
        select=tuple(choice.select),
        ignore=tuple(choice.ignore),
        checks=tuple(choice.checks),
        formats=tuple(reporting.formats),
        keeps_history=not reporting.no_history,
        **{name: value for name, value in reporting._asdict().items() if name in SAME_OPTIONS},
        **spares._asdict(),
        exit_code_policy=ExitCodePolicy(reporting.fail_exit, reporting.exit_style, bounds.profile),  # type: ignore[arg-type]
    )


def _with_gang(options: PreflightOptions, gang: GangOptions | None) -> PreflightOptions:
    """Raises: UsageError for options that contradict it."""
    if gang is None:
        return options
    others = {
        "--scope": options.scope != "auto",
        "--transport": options.transport != "ssh",
        "--within": bool(options.within),
        "--profile": options.exit_code_policy.profile != "job",
    }
    for option, is_set in others.items():
        if is_set:
            raise UsageError(filled("--gang and {0} are both given: expected one of them", option))
    return msgspec.structs.replace(options, gang=gang)


def _validate_options(bounds: LimitOptions, spares: SpareOptions, reporting: ReportingOptions) -> None:
    """Raises: CommandError for what cannot be followed."""
    require_one_of("--tier", bounds.tier, ("", *TIERS))
    require_one_of("--scope", bounds.scope, ("auto", "local", "cluster"))
    require_one_of("--net", bounds.net, ("", "quick", "full", "off"))
    require_one_of("--profile", bounds.profile, ("job", "prolog"))
    require_one_of("--node-format", spares.node_format, FORMATS)
    require_one_of("--fail-on", reporting.fail_on, ("error", "warning"))
    require_one_of("--on-unknown", reporting.on_unknown, ("fail", "warn", "ok"))
    require_one_of("--exit-style", reporting.exit_style, STYLES)
    if why := format_conflict(spares.node_format, spares.write_nodes, spares.write_bad):
        raise UsageError(why)
    _validate_files(spares, reporting)
    if reporting.fail_exit and reporting.exit_style != "doctor":
        raise UsageError("--fail-exit and --exit-style are both given: expected one of them")
    for target in requested_targets(reporting.formats):
        if not target.path:
            raise UsageError(
                filled("-f {0}: expected {1}=FILE, since stdout holds the one line", target.name, target.name)
            )


def _validate_files(spares: SpareOptions, reporting: ReportingOptions) -> None:
    """Raises: UsageError where one output would overwrite another."""
    targets = requested_targets(reporting.formats)
    outputs = [("--write-nodes", spares.write_nodes), ("--write-bad", spares.write_bad)]
    outputs += [("--report", reporting.report), ("--save", reporting.save)]
    outputs += [(f"-f {target.name}", target.path) for target in targets]
    if why := output_conflict(outputs):
        raise UsageError(why)


def within_time_left(options: PreflightOptions, seconds_left: float | None) -> PreflightOptions:
    """With a budget that ends before the scheduler ends the job, so that there is a line in any case."""
    if seconds_left is None:
        return options
    options = msgspec.structs.replace(options, launch=msgspec.structs.replace(options.launch, time_left_s=seconds_left))
    if options.budget <= seconds_left - REPORT_MARGIN:
        return options
    budget = max(1.0, seconds_left - REPORT_MARGIN)
    print_warning(
        filled(
            "the scheduler ends the job in {0} s: the budget is {1} s, not {2} s",
            f"{seconds_left:.0f}",
            f"{budget:.0f}",
            f"{options.budget:g}",
        )
    )
    return msgspec.structs.replace(options, budget=budget)

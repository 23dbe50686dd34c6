"""`doctor smoke`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from msgspec.structs import replace

from doctor.cli.baseline import add_to_baseline, compared_baseline
from doctor.cli.host_options import (
    SCOPES,
    ConnectionOptions,
    HostOptions,
    JobOptions,
    ScopeOption,
    VisitOptions,
    connection_words,
    require_finite,
    ssh_options,
    validate_connection,
)
from doctor.cli.launch_source import SourceOptions, job_targets, with_hosts_of_line
from doctor.cli.shared_options import (
    CheckOptions,
    NoHistoryOption,
    OutputOptions,
    device_numbers,
    expand_option_groups,
    history_options,
    time_option,
)
from doctor.engine.check import Check
from doctor.engine.errors import UsageError, require_one_of, require_utf_8
from doctor.engine.quantities import parse_bytes
from doctor.engine.record import LaunchOptions
from doctor.engine.texts import filled
from doctor.environment.inventory import Inventory
from doctor.hosts.nodeset import InventoryError, validate_host
from doctor.hosts.selection import HostSelection
from doctor.report.layout.progress_line import ProgressLine
from doctor.session.connection import ssh_to
from doctor.session.examine import examine, examine_smoke
from doctor.session.examine_options import ExamineOptions
from doctor.session.finish import load_saved_run, replay_and_report, save_and_report, start_events, validate_output
from doctor.session.output_files import combine_callbacks, print_warning
from doctor.session.select_checks import choose_checks, load_catalog
from doctor.smoke.plan import DEVICE_SECONDS, SmokeOptions, options_of_launch, read_layout
from doctor.smoke.run.channels import start_agents
from doctor.smoke.run.early_start import take_early
from doctor.smoke.triage.screening import needs_screening
from doctor.transport.open import open_transport

AREA = ("smoke",)
ENVIRONMENTS = ("job", "clean")
BACKENDS = ("auto", "gloo", "nccl", "hccl")


class TrainingOptions(NamedTuple):
    """Options of the training."""

    backend: Annotated[str, typer.Option(metavar="NAME", help="One of auto, gloo, nccl, hccl.")] = "auto"
    devices: Annotated[str, typer.Option(metavar="LIST", help="NPUs or GPUs of each host, for example 0-3,6.")] = ""
    layout: Annotated[list[str], typer.Option(metavar="dp=4,tp=2,pp=1", help="Run only this layout; repeatable.")] = []
    native: Annotated[bool, typer.Option("--native", help="Also run DDP, FSDP2, DTensor and pipelining.")] = False
    device_test: Annotated[
        bool, typer.Option("--device-test", help="Also test each device: its results and its speed.")
    ] = False
    steps: Annotated[int, typer.Option(metavar="N", min=1, max=100, help="Training steps per layout.")] = 3
    seed: Annotated[int, typer.Option(metavar="N", min=0, max=2**31 - 1, help="Random seed of data and model.")] = 1
    max_bytes: Annotated[str, typer.Option(metavar="SIZE", help="Largest collective, for example 64K or 4M.")] = "1M"
    interface: Annotated[str, typer.Option(metavar="NAME", help="Network interface of the ranks.")] = ""
    soak: Annotated[str, typer.Option("--for", metavar="TIME", help="Repeat collectives for this long: 90s, 10m.")] = ""
    cells: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            max=64,
            help="Hosts that run together in the screening of more than 32.",
            show_default=False,
        ),
    ] = 0
    baseline: Annotated[
        Path | None, typer.Option(metavar="FILE|site", help="Compare speeds with those of earlier runs.")
    ] = None
    save_baseline: Annotated[Path | None, typer.Option(metavar="FILE|site", help="Add the speeds of this run.")] = None
    env: Annotated[str, typer.Option(metavar="job|clean", help="Variables of the job in force, or none.")] = "job"
    budget: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=1, callback=require_finite, help="Time limit of all stages, in seconds."),
    ] = 120.0


@expand_option_groups
def command(
    *,
    hosts: HostOptions,
    scope: ScopeOption = "auto",
    when_idle: Annotated[
        str | None, typer.Option(metavar="NODE", help="In a pod: only while no pod on this node has devices.")
    ] = None,
    training: TrainingOptions,
    job: JobOptions,
    source: SourceOptions,
    connection: ConnectionOptions,
    choice: CheckOptions,
    output: OutputOptions,
    no_history: NoHistoryOption = False,
) -> None:
    """Train a tiny model on the hosts and name the rank that fails.

    Without hosts: 4 ranks on the CPUs of this machine. Hosts come from the same sources as in `doctor check`. Every
    host needs torch for the job's interpreter (--python). The run leaves no process and no file on the hosts.

    `doctor smoke HOSTS -- torchrun --nnodes 2 train.py` runs in the environment that this launch line gives the job.

    Exit codes: as `doctor check`.
    """
    validate_connection(connection)
    validate_output(output, choice.checks)
    require_one_of("--scope", scope, SCOPES)
    job_environment = source.read()
    environ = job_environment.environ
    smoke_options = parse_smoke_options(training, job_environment.complete(job.launch()), environ)
    if output.from_file:
        run, catalog = load_saved_run(output.from_file), load_catalog(choice.checks)
        selected = choose_checks(catalog, choice.select or AREA, choice.ignore, roots=True)
        reached_by = connection_words(connection, VisitOptions())
        raise typer.Exit(replay_and_report(run, selected, catalog, output, command="smoke", connection=reached_by))
    # An empty name is that of a variable that is not set, and no leave to test.
    selection = with_hosts_of_line(hosts.selection_by(connection), job_environment)
    idle = None if when_idle is None else _idle_node(when_idle, selection)
    fleet, launch, within = job_targets(job_environment, hosts, scope, job, connection, fleet=idle)
    warn_of_time_left(smoke_options, launch.time_left_s)
    ssh = ssh_to(fleet, ssh_options(connection), connection.transport)
    # The agents of a screening are started cell by cell.
    screened = needs_screening(len(fleet.hosts), smoke_options.cell_size)
    smoke_checks_only = not (any(choice) or within or screened)

    # With the run's own checks alone, the hosts' agents start while the rest is loaded.
    transport = None
    if smoke_checks_only:
        slots, port = {host: fleet.slots.get(host, 0) for host in fleet.hosts}, smoke_options.master_port
        early = take_early(slots, fleet.local, port)
        if early:
            agents, transport = early
        else:
            transport = open_transport(fleet.local, connection.transport, ssh, fleet.hosts)
            agents = start_agents(slots, transport, port, local=fleet.local, python=launch.python)

    catalog = load_catalog(choice.checks)
    selected = choose_checks(catalog, choice.select or AREA, choice.ignore, roots=True)
    options = ExamineOptions(transport=connection.transport, ssh=ssh, within=within, launch=launch, smoke=smoke_options)
    progress = ProgressLine(len(fleet.hosts), sys.stderr)
    events = start_events(output, fleet.hosts, selected, fleet.source)
    step, stage = combine_callbacks(progress.step, events.host), combine_callbacks(progress.stage, events.stage)
    try:
        if transport:
            examination = examine_smoke(
                fleet,
                agents,
                transport,
                selected,
                options,
                environ,
                rank_table=hosts.rank_table or "",
                progress=step,
                stage=stage,
                meanwhile=_load_meanwhile(selected),
            )
        else:
            examination = examine(
                fleet, selected, options, environ, rank_table=hosts.rank_table or "", progress=step, stage=stage
            )
    finally:
        progress.close()
    if examination.smoke_rejection:
        raise UsageError(examination.smoke_rejection)
    history = history_options("smoke", output, no_history)
    code = save_and_report(examination, catalog, output, events, history, "smoke")
    if training.save_baseline:
        add_to_baseline(training.save_baseline, examination.report.smoke)
    raise typer.Exit(code)


def _idle_node(node: str, selection: HostSelection) -> Inventory:
    """This host alone, by the node's name; only where it is idle, and only as long as it is. Raises: CommandError."""
    from doctor.collect.node_record import this_host_only
    from doctor.session.idle_guard import run_only_when_idle

    if selection.names_hosts or selection.pods is not None:
        raise UsageError("--when-idle tests the node of this pod alone; expected it without hosts")
    try:
        run_only_when_idle(validate_host(node, "--when-idle"))
    except InventoryError as error:
        raise UsageError(str(error)) from None
    return this_host_only(node, None)


def _load_meanwhile(checks: Iterable[Check]) -> Iterator[object]:
    """Loads the checks and the report modules in small pieces."""
    for check in checks:
        yield check.needs
    for name in ("smoke.results.figures", "engine.exit_code", "report.formats.plain", "report.formats.json"):
        yield import_module(f"doctor.{name}")


def parse_smoke_options(
    training: TrainingOptions, launch: LaunchOptions, environ: Mapping[str, str] = os.environ
) -> SmokeOptions:
    """The options of the command line as a `SmokeOptions`; ``environ``: the job's. Raises: CommandError."""
    require_one_of("--backend", training.backend, BACKENDS)
    require_one_of("--env", training.env, ENVIRONMENTS)
    of_launch = options_of_launch(launch, environ if training.env == "job" else {})
    sent = {"--python": launch.python, "--interface": training.interface, "--master-addr": of_launch.master_addr}
    for option, value in sent.items():
        require_utf_8(option, value)
    try:
        for text in training.layout:
            read_layout(text)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return replace(
        of_launch,
        backend=None if training.backend == "auto" else training.backend,
        devices=device_numbers(training.devices),
        layouts=tuple(training.layout),
        native=training.native,
        device_seconds=DEVICE_SECONDS if training.device_test else 0.0,
        steps=training.steps,
        seed=training.seed,
        max_bytes=_bytes(training.max_bytes),
        budget=training.budget,
        interface=training.interface,
        baseline=compared_baseline(training.baseline, training.save_baseline),
        soak=time_option("--for", training.soak, 0.0),
        cell_size=_cell_size(training.cells),
        environment=training.env,
    )


def _cell_size(hosts: int) -> int:
    """Raises: UsageError."""
    if hosts == 1:
        raise UsageError("--cells 1: expected at least 2 hosts, which run together")
    return hosts


def warn_of_time_left(options: SmokeOptions, left: float | None) -> None:
    """The scheduler would end the run before its own limits do. ``left``: seconds; None: not known."""
    seconds = options.budget + options.soak + options.device_seconds
    if left is not None and seconds > left:
        print_warning(
            filled("the run may take {0} s, and the scheduler ends the job in {1} s", f"{seconds:.0f}", f"{left:.0f}")
        )


def _bytes(text: str) -> int:
    """``4M`` as a number. Raises: CommandError."""
    size = parse_bytes(text) or 0
    if not 4 <= size <= 1 << 31:
        raise UsageError(filled("--max-bytes {0}: expected a size from 4 to 2G, for example 64K or 4M", f"{text!r}"))
    return size

"""`doctor smoke`."""

from __future__ import annotations

import os
import re
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from doctor.cli.host_options import (
    ConnectionOptions,
    HostOptions,
    JobOptions,
    inventory,
    ssh_options,
    validate_connection,
)
from doctor.cli.selection import ChecksOption, IgnoreOption, SelectOption, choose_checks, load_catalog
from doctor.cli.shared_options import device_numbers, expand_option_groups
from doctor.engine.errors import UsageError, require_one_of
from doctor.session.finish import OutputOptions, finish, finish_replay, load_saved_run, start_events, validate_output
from doctor.session.output_files import combine_callbacks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from doctor.engine.check import Check
    from doctor.smoke.plan import SmokeOptions

BACKENDS = ("auto", "gloo", "nccl", "hccl")
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30}


class TrainingOptions(NamedTuple):
    """What is trained, and how."""

    backend: Annotated[str, typer.Option(metavar="|".join(BACKENDS), help="How ranks talk.")] = "auto"
    devices: Annotated[str, typer.Option(metavar="LIST", help="NPUs or GPUs of each host, as in 0-3,6.")] = ""
    layout: Annotated[
        list[str], typer.Option(metavar="dp=4,tp=2,pp=1", help="Only this layout; may be given again.")
    ] = []
    native: Annotated[bool, typer.Option("--native", help="Also with DDP, FSDP2, DTensor and pipelining.")] = False
    steps: Annotated[int, typer.Option(metavar="N", min=1, max=100, help="Steps of each layout.")] = 3
    seed: Annotated[int, typer.Option(metavar="N", min=0, max=2**31 - 1, help="Seed of the data and the model.")] = 1
    max_bytes: Annotated[str, typer.Option(metavar="SIZE", help="Largest collective, as in 64K or 4M.")] = "1M"
    interface: Annotated[str, typer.Option(metavar="NAME", help="Network interface of the ranks.")] = ""
    budget: Annotated[float, typer.Option(metavar="SECONDS", min=1, help="For all stages together.")] = 120.0


@expand_option_groups
def command(
    *,
    hosts: HostOptions,
    training: TrainingOptions,
    job: JobOptions,
    connection: ConnectionOptions,
    select: SelectOption = [],  # noqa: B006 - typer's way
    ignore: IgnoreOption = [],  # noqa: B006
    checks: ChecksOption = [],  # noqa: B006
    output: OutputOptions,
) -> None:
    """Train a tiny model on the hosts and name the rank that fails.

    With no hosts: on this machine, 4 ranks on its CPUs. Hosts come from where `doctor check` takes them. It needs
    torch for the job's interpreter on every host (--python), starts nothing that outlives it, and writes nothing there.

    Exit codes: as `doctor check`.
    """
    validate_connection(connection)
    validate_output(output, checks)
    smoke_options = parse_smoke_options(training, job)
    smoke_checks_only = not (select or ignore or checks or connection.within or output.from_file)
    catalog = [] if smoke_checks_only else load_catalog(checks)
    selected = [] if smoke_checks_only else choose_checks(catalog, select or ["smoke"], ignore, roots=True)
    if output.from_file:
        finish_replay(load_saved_run(output.from_file), selected, catalog, output)
    fleet, ssh = inventory(hosts), ssh_options(connection)
    from doctor.transport.open import open_transport

    # With the run's own checks alone, the hosts' agents start while the rest is loaded.
    transport = open_transport(fleet.local, connection.transport, ssh, fleet.hosts) if smoke_checks_only else None
    if transport:
        from doctor.smoke.run.connect import start_agents

        slots = {host: fleet.slots.get(host, 0) for host in fleet.hosts}
        agents = start_agents(slots, transport, smoke_options.master_port, local=fleet.local)
    from doctor.report.layout.progress_line import ProgressLine
    from doctor.session.examine import ExamineOptions, examine, examine_smoke

    options = ExamineOptions(
        transport=connection.transport, ssh=ssh, within=connection.within, launch=job.launch(), smoke=smoke_options
    )
    progress, loader = ProgressLine(len(fleet.hosts), sys.stderr), IncrementalLoader()
    events = start_events(output, fleet.hosts, selected, fleet.source)
    table = hosts.rank_table or ""
    try:
        if transport:
            examination = examine_smoke(
                fleet,
                agents,
                transport,
                loader.smoke_checks,
                options,
                os.environ,
                rank_table=table,
                progress=combine_callbacks(progress.step, events.host),
                stage=combine_callbacks(progress.stage, events.stage),
                meanwhile=loader.load(),
            )
        else:
            examination = examine(
                fleet,
                selected,
                options,
                os.environ,
                rank_table=table,
                progress=combine_callbacks(progress.step, events.host),
                stage=combine_callbacks(progress.stage, events.stage),
            )
    finally:
        progress.close()
    if examination.smoke_rejection:
        raise UsageError(examination.smoke_rejection)
    finish(examination, loader.catalog or catalog, output, events)


class IncrementalLoader:
    """What the end of the run needs, loaded in small pieces: every check, and the report's parts."""

    def __init__(self) -> None:
        self.catalog: list[Check] = []
        self._complete = False

    def load(self) -> Iterator[object]:
        from doctor.engine.catalog import iter_checks

        for check in iter_checks():
            self.catalog.append(check)
            yield check.needs
        self._complete = True
        for name in (
            "doctor.smoke.results.figures",
            "doctor.engine.exit_code",
            "doctor.report.formats.plain",
            "doctor.report.formats.json",
        ):
            yield import_module(name)

    def smoke_checks(self) -> list[Check]:
        """The run's own checks. If an interrupt fell into the loading, it is done anew."""
        if not self._complete:
            self.catalog = load_catalog([])
        return choose_checks(self.catalog, ["smoke"], roots=True)


def parse_smoke_options(training: TrainingOptions, job: JobOptions) -> SmokeOptions:
    """What the words ask for. Raises: CommandError."""
    from doctor.smoke.plan import SmokeOptions, read_layout

    require_one_of("--backend", training.backend, BACKENDS)
    try:
        for text in training.layout:
            read_layout(text)
    except ValueError as error:
        raise UsageError(f"--{error}") from None
    return SmokeOptions(
        backend=None if training.backend == "auto" else training.backend,  # type: ignore[arg-type]
        ranks_per_host=job.ranks_per_host,
        devices=device_numbers(training.devices),
        layouts=tuple(training.layout),
        native=training.native,
        steps=training.steps,
        seed=training.seed,
        max_bytes=_bytes(training.max_bytes),
        master_addr=job.master_addr,
        master_port=job.master_port,
        budget=training.budget,
        python=job.python,
        interface=training.interface,
    )


def _bytes(text: str) -> int:
    """``4M`` as a number. Raises: CommandError."""
    match = re.fullmatch(r"(\d{1,10})\s*([KMG]?)(?:i?B)?", text.strip(), re.ASCII | re.IGNORECASE)
    size = int(match[1]) << _UNITS[match[2].upper()] if match else 0
    if not 4 <= size <= 1 << 31:
        raise UsageError(f"--max-bytes {text!r}: expected a size from 4 to 2G, as in 64K or 4M")
    return size

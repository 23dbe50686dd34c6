"""`doctor smoke`."""

from __future__ import annotations

import os
import re
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from doctor.cli.host_options import Hosts, Job, Ways, inventory, refuse_ways, ssh_options
from doctor.cli.selection import Names, Not, Sites, catalogue, chosen
from doctor.cli.shared_options import device_numbers, spread
from doctor.engine.errors import UsageError, require_one_of
from doctor.session.finish import Output, again, finish, refuse_output, saved, watch
from doctor.session.output_files import both

if TYPE_CHECKING:
    from collections.abc import Iterator

    from doctor.engine.check import Check
    from doctor.smoke.plan import Wish

BACKENDS = ("auto", "gloo", "nccl", "hccl")
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30}


class Training(NamedTuple):
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


@spread
def command(
    *,
    hosts: Hosts,
    training: Training,
    job: Job,
    ways: Ways,
    select: Names = [],  # noqa: B006 - typer's way
    ignore: Not = [],  # noqa: B006
    checks: Sites = [],  # noqa: B006
    output: Output,
) -> None:
    """Train a tiny model in parallel on the hosts, and name the rank that breaks it.

    With no hosts: on this machine, 4 ranks on its CPUs. Hosts come from where `doctor check` takes them. It needs
    torch for the job's interpreter on every host (--python), starts nothing that outlives it, and writes nothing there.

    Exit codes: as `doctor check`.
    """
    refuse_ways(ways)
    refuse_output(output, checks)
    wish = asked(training, job)
    plain = not (select or ignore or checks or ways.within or output.from_file)
    known = [] if plain else catalogue(checks)
    picked = [] if plain else chosen(known, select or ["smoke"], ignore, roots=True)
    if output.from_file:
        again(saved(output.from_file), picked, known, output)
    fleet, ssh = inventory(hosts), ssh_options(ways)
    from doctor.transport.open import open_transport

    # With the run's own checks alone, the hosts' agents start while the rest is loaded.
    transport = open_transport(fleet.local, ways.transport, ssh, fleet.hosts) if plain else None
    if transport:
        from doctor.smoke.run.connect import call

        slots = {host: fleet.slots.get(host, 0) for host in fleet.hosts}
        called = call(slots, transport, wish.master_port, local=fleet.local)
    from doctor.report.layout.progress_line import Progress
    from doctor.session.examine import Options, examine, examine_smoke

    options = Options(transport=ways.transport, ssh=ssh, within=ways.within, launch=job.launch, smoke=wish)
    progress, later = Progress(len(fleet.hosts), sys.stderr), Later()
    events = watch(output, fleet.hosts, picked, fleet.source)
    table = hosts.rank_table or ""
    try:
        if transport:
            done = examine_smoke(
                fleet,
                called,
                transport,
                later.picked,
                options,
                os.environ,
                rank_table=table,
                progress=both(progress.step, events.host),
                stage=both(progress.stage, events.stage),
                meanwhile=later.load(),
            )
        else:
            done = examine(
                fleet,
                picked,
                options,
                os.environ,
                rank_table=table,
                progress=both(progress.step, events.host),
                stage=both(progress.stage, events.stage),
            )
    finally:
        progress.close()
    if done.refused:
        raise UsageError(done.refused)
    finish(done, later.known or known, output, events)


class Later:
    """What the end of the run needs, loaded in small pieces: every check, and the report's parts."""

    def __init__(self) -> None:
        self.known: list[Check] = []
        self._whole = False

    def load(self) -> Iterator[object]:
        from doctor.engine.catalog import one_by_one

        for one in one_by_one():
            self.known.append(one)
            yield one.needs
        self._whole = True
        for name in (
            "doctor.smoke.results.figures",
            "doctor.engine.exit_code",
            "doctor.report.formats.plain",
            "doctor.report.formats.json",
        ):
            yield import_module(name)

    def picked(self) -> list[Check]:
        """The run's own checks. If an interrupt fell into the loading, it is done anew."""
        if not self._whole:
            self.known = catalogue([])
        return chosen(self.known, ["smoke"], roots=True)


def asked(training: Training, job: Job) -> Wish:
    """What the words ask for. Raises: CommandError."""
    from doctor.smoke.plan import Wish, read_layout

    require_one_of("--backend", training.backend, BACKENDS)
    try:
        for text in training.layout:
            read_layout(text)
    except ValueError as error:
        raise UsageError(f"--{error}") from None
    return Wish(
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
    found = re.fullmatch(r"(\d{1,10})\s*([KMG]?)(?:i?B)?", text.strip(), re.ASCII | re.IGNORECASE)
    size = int(found[1]) << _UNITS[found[2].upper()] if found else 0
    if not 4 <= size <= 1 << 31:
        raise UsageError(f"--max-bytes {text!r}: expected a size from 4 to 2G, as in 64K or 4M")
    return size

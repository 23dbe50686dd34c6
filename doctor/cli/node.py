"""`doctor node`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from doctor.cli.expected_hosts import ExpectedHostOptions, expected_inventory
from doctor.cli.host_options import (
    DEFAULT_TIMEOUT,
    BudgetOption,
    ConnectionOptions,
    JobOptions,
    ProductOption,
    SudoOption,
    TimeoutOption,
    WithinOption,
    validate_connection,
    validate_product,
)
from doctor.cli.launch_source import SourceOptions
from doctor.cli.shared_options import CheckOptions, OutputOptions, expand_option_groups
from doctor.collect.node_lines import encode_lines
from doctor.collect.node_record import encode_record, host_name, this_host_only
from doctor.config.atomic_write import write_atomic
from doctor.engine.errors import CommandError, UsageError
from doctor.engine.exit_code import signal_exit_code
from doctor.engine.texts import filled
from doctor.job.variables import of_one_host
from doctor.session.examine import examine
from doctor.session.examine_options import ExamineOptions
from doctor.session.finish import save_and_report, validate_output
from doctor.session.replay import Examination
from doctor.session.select_checks import choose_with_rounds, load_catalog

NOT_WRITTEN_EXIT_CODE = 12
"""The record could not be written, so doctor merge will not know this host's state."""
LINES_PER_WRITE = 8
"""Lines of 512 bytes, which a pipe writes atomically."""


@expand_option_groups
def command(
    *,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write DIR/HOST.json for doctor merge; -: lines on stdout.")
    ] = None,
    judge: Annotated[bool, typer.Option("--judge", help="With --out DIR: also report, and exit accordingly.")] = False,
    mode: Annotated[str, typer.Option(metavar="OCTAL", help="Mode of the file, for example 0640.")] = "0600",
    name: Annotated[str, typer.Option(metavar="NAME", help="This host's name in the fleet.")] = "",
    fleet: ExpectedHostOptions,
    choice: CheckOptions,
    job: JobOptions,
    source: SourceOptions,
    product: ProductOption = "",
    within: WithinOption = "",
    sudo: SudoOption = False,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
    budget: BudgetOption = 0.0,
    output: OutputOptions,
) -> None:
    """Check this host alone, or write its record for doctor merge.

    The host's name comes from --name, else SLURMD_NODENAME, else the host list (--expect, --hostfile, --rank-table,
    DOCTOR_HOSTS, DOCTOR_HOSTFILE, SLURM_JOB_NODELIST, RANK_TABLE_FILE), else it is the short host name.

    Exit codes: as doctor check, for this host alone. With --out: 0 when the record was written, so that a finding does
    not stop a launcher before doctor merge has checked the fleet, and 12 when it was not. With --judge: as without
    --out.
    """
    validate_product(product)
    validate_connection(ConnectionOptions(within=within))
    validate_output(output, choice.checks)
    bits = _mode(mode)
    if output.from_file:
        raise UsageError("--from reads a saved run: expected it with doctor check")
    if judge and (out is None or out == Path("-")):
        raise UsageError("--judge needs a folder: expected --out DIR")
    if out is not None and not judge and (output.as_json or output.formats or output.save):
        raise UsageError("--out without --judge makes no report: expected it without --json, --format and --save")
    catalog = load_catalog(choice.checks)
    selected = choose_with_rounds(catalog, choice.select, choice.ignore)

    job_environment = source.read()
    environ = job_environment.environ
    launch = job_environment.complete(job.launch(product))
    named = expected_inventory(fleet)
    me = host_name(name, named, os.environ)
    options = ExamineOptions(
        sudo=sudo,
        within=job_environment.within(within, is_local=True),
        timeout=timeout,
        budget=budget,
        launch=replace(launch.of_one_host(), environ=of_one_host(environ)),
    )
    if job_environment.line is not None:
        from doctor.session.training_files import with_launch_line

        options = with_launch_line(options, job_environment, source.job_script)
    host = job_environment.annotate(this_host_only(me, named))
    examination = examine(host, selected, options, environ, rank_table=fleet.rank_table or "")
    if out is None:
        raise typer.Exit(save_and_report(examination, catalog, output))
    _write_record(examination, me, out, bits)
    if judge:
        raise typer.Exit(save_and_report(examination, catalog, output))
    raise typer.Exit(signal_exit_code(examination.stopped) if examination.stopped else 0)


def _mode(text: str) -> int:
    """Raises: CommandError."""
    try:
        bits = int(text, 8)
    except ValueError:
        bits = -1
    if not 0o400 <= bits <= 0o777:
        raise UsageError(filled("--mode {0}: expected octal digits such as 0640", f"{text!r}"))
    return bits


def _write_record(examination: Examination, name: str, out: Path, mode: int) -> None:
    """Writes the record atomically. Raises: CommandError."""
    data, path = encode_record(examination.run, os.environ), out
    try:
        if out == Path("-"):
            return _write_lines(encode_lines(name, data))
        out.mkdir(parents=True, exist_ok=True)
        path = out / f"{name}.json"
        write_atomic(path, data, mode)
    except OSError as error:
        raise CommandError(
            filled("--out {0}: {1}; the record of this host was not written", path, error.strerror),
            NOT_WRITTEN_EXIT_CODE,
        ) from None


def _write_lines(lines: Sequence[bytes]) -> None:
    """Writes complete lines, in blocks that a pipe accepts atomically. Raises: OSError."""
    sys.stdout.flush()
    for start in range(0, len(lines), LINES_PER_WRITE):
        data = b"".join(lines[start : start + LINES_PER_WRITE])
        while data:
            data = data[os.write(1, data) :]

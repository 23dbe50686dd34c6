"""`doctor node`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

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
from doctor.cli.selection import ChecksOption, IgnoreOption, SelectOption, choose_checks, load_catalog
from doctor.cli.shared_options import expand_option_groups
from doctor.engine.errors import CommandError, UsageError
from doctor.session.finish import OutputOptions, finish, save_and_report, validate_output

if TYPE_CHECKING:
    from doctor.session.examine import Examination

NOT_WRITTEN_EXIT_CODE = 12
"""What this host is like is not known to who would merge it."""
LINES_PER_WRITE = 8
"""Lines of 512 bytes: as much as a pipe takes in one piece."""


@expand_option_groups
def command(
    *,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write DIR/HOST.json for doctor merge; -: lines on stdout.")
    ] = None,
    judge: Annotated[bool, typer.Option("--judge", help="With --out DIR: report, and exit by it, too.")] = False,
    mode: Annotated[str, typer.Option(metavar="OCTAL", help="Who may read the file, such as 0640.")] = "0600",
    name: Annotated[str, typer.Option(metavar="NAME", help="This host's name in the fleet.")] = "",
    fleet: ExpectedHostOptions,
    select: SelectOption = [],  # noqa: B006 - typer's way
    ignore: IgnoreOption = [],  # noqa: B006
    checks: ChecksOption = [],  # noqa: B006
    job: JobOptions,
    product: ProductOption = "",
    within: WithinOption = "",
    sudo: SudoOption = False,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
    budget: BudgetOption = 0.0,
    output: OutputOptions,
) -> None:
    """Check this host alone, or write its record for doctor merge.

    It is called by --name, else SLURMD_NODENAME, else as the fleet (--expect, --hostfile, --rank-table, DOCTOR_HOSTS,
    DOCTOR_HOSTFILE, SLURM_JOB_NODELIST, RANK_TABLE_FILE) names it, else by its short host name.

    Exit codes: as doctor check, by what is wrong with this host alone. With --out: 0 when the record was written, so
    that a finding stops no launcher before doctor merge has judged the fleet, and 12 when it was not; with --judge as
    without --out.
    """
    validate_product(product)
    validate_connection(ConnectionOptions(within=within))
    validate_output(output, checks)
    bits = _mode(mode)
    if output.from_file:
        raise UsageError("--from judges a saved run: expected it with doctor check")
    if judge and (out is None or out == Path("-")):
        raise UsageError("--judge goes with a folder: expected --out DIR")
    if out is not None and not judge and (output.as_json or output.formats or output.save):
        raise UsageError("--out without --judge makes no report: expected it without --json, --format and --save")
    catalog = load_catalog(checks)
    selected = choose_checks(catalog, select, ignore if select else [*ignore, "smoke"], roots=True)
    from doctor.collect.node import host_name, this_host_only
    from doctor.session.examine import ExamineOptions, examine

    named = expected_inventory(fleet)
    me = host_name(name, named, os.environ)
    options = ExamineOptions(
        sudo=sudo,
        within=within,
        timeout=timeout,
        budget=budget,
        launch=job.launch(product),
    )
    examination = examine(this_host_only(me, named), selected, options, os.environ, rank_table=fleet.rank_table or "")
    if out is None:
        finish(examination, catalog, output)
    _write_record(examination, me, out, bits)
    raise typer.Exit(save_and_report(examination, catalog, output) if judge else _signal_exit_code(examination))


def _mode(text: str) -> int:
    """Raises: CommandError."""
    try:
        bits = int(text, 8)
    except ValueError:
        bits = -1
    if not 0o400 <= bits <= 0o777:
        raise UsageError(f"--mode {text!r}: expected octal digits such as 0640")
    return bits


def _write_record(examination: Examination, name: str, out: Path, mode: int) -> None:
    """Writes the record whole, or not at all. Raises: CommandError."""
    from doctor.collect.node import encode_record
    from doctor.collect.node_lines import encode_lines
    from doctor.config.atomic_write import write_atomic

    data, path = encode_record(examination.run, os.environ), out
    try:
        if out == Path("-"):
            return _write_lines(encode_lines(name, data))
        out.mkdir(parents=True, exist_ok=True)
        path = out / f"{name}.json"
        write_atomic(path, data, mode)
    except OSError as error:
        raise CommandError(
            f"--out {path}: {error.strerror}; what this host is like was not written", NOT_WRITTEN_EXIT_CODE
        ) from None


def _write_lines(lines: Sequence[bytes]) -> None:
    """Some whole lines a write, of a size that a pipe takes at once. Raises: OSError."""
    sys.stdout.flush()
    for start in range(0, len(lines), LINES_PER_WRITE):
        data = b"".join(lines[start : start + LINES_PER_WRITE])
        while data:
            data = data[os.write(1, data) :]


def _signal_exit_code(examination: Examination) -> int:
    """0, or the exit code of the signal that cut it short."""
    stop = examination.stopped
    if stop is None:
        return 0
    return stop.code if isinstance(stop, SystemExit) and isinstance(stop.code, int) else 130

"""`doctor node`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from doctor.cli.expected_hosts import Expected, expected
from doctor.cli.host_options import Job, Ways, refuse_product, refuse_ways
from doctor.cli.selection import Names, Not, Sites, catalogue, chosen
from doctor.cli.shared_options import spread
from doctor.engine.errors import CommandError, UsageError
from doctor.session.finish import Output, finish, put_out, refuse_output

if TYPE_CHECKING:
    from doctor.session.examine import Examination

NOT_WRITTEN = 12
"""What this host is like is not known to who would merge it."""
AT_ONCE = 8
"""Lines of 512 bytes: as much as a pipe takes in one piece."""


@spread
def command(
    *,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write DIR/HOST.json for doctor merge; -: lines on stdout.")
    ] = None,
    judge: Annotated[bool, typer.Option("--judge", help="With --out DIR: report, and exit by it, too.")] = False,
    mode: Annotated[str, typer.Option(metavar="OCTAL", help="Who may read the file, such as 0640.")] = "0600",
    name: Annotated[str, typer.Option(metavar="NAME", help="This host's name in the fleet.")] = "",
    fleet: Expected,
    select: Names = [],  # noqa: B006 - typer's way
    ignore: Not = [],  # noqa: B006
    checks: Sites = [],  # noqa: B006
    job: Job,
    product: Annotated[str, typer.Option(metavar="A1|A2|A3", help="NPU family, where the host does not tell.")] = "",
    within: Annotated[
        str, typer.Option(metavar="WORDS", help='Look inside the container: "docker exec -i NAME".')
    ] = "",
    sudo: Annotated[bool, typer.Option("--sudo", help="Read with sudo -n what only root can read.")] = False,
    timeout: Annotated[float, typer.Option(metavar="S", min=1, help="Seconds for the answer.")] = 60.0,
    budget: Annotated[float, typer.Option(metavar="S", min=0, help="Seconds for the whole run; 0 is none.")] = 0.0,
    output: Output,
) -> None:
    """Look at this host alone, without SSH, and report or leave a file for doctor merge.

    It is called by --name, else SLURMD_NODENAME, else as the fleet (--expect, --hostfile, --rank-table, DOCTOR_HOSTS,
    DOCTOR_HOSTFILE, SLURM_JOB_NODELIST, RANK_TABLE_FILE) names it, else by its short host name.

    Exit codes: as doctor check, by what is wrong with this host alone. With --out: 0 when the record was written, so
    that a finding stops no launcher before doctor merge has judged the fleet, and 12 when it was not; with --judge as
    without --out.
    """
    refuse_product(product)
    refuse_ways(Ways(within=within))
    refuse_output(output, checks)
    bits = _mode(mode)
    if output.from_file:
        raise UsageError("--from judges a saved run: expected it with doctor check")
    if judge and (out is None or out == Path("-")):
        raise UsageError("--judge goes with a folder: expected --out DIR")
    if out is not None and not judge and (output.as_json or output.formats or output.save):
        raise UsageError("--out without --judge makes no report: expected it without --json, --format and --save")
    known = catalogue(checks)
    picked = chosen(known, select, ignore if select else [*ignore, "smoke"], roots=True)
    from doctor.collect.node import alone, called
    from doctor.session.examine import Options, examine

    named = expected(fleet)
    me = called(name, named, os.environ)
    options = Options(
        sudo=sudo,
        within=within,
        timeout=timeout,
        budget=budget,
        launch={"product": product, **job.launch} if product else job.launch,
    )
    done = examine(alone(me, named), picked, options, os.environ, rank_table=fleet.rank_table or "")
    if out is None:
        finish(done, known, output)
    _leave(done, me, out, bits)
    raise typer.Exit(put_out(done, known, output) if judge else _stopped(done))


def _mode(text: str) -> int:
    """Raises: CommandError."""
    try:
        bits = int(text, 8)
    except ValueError:
        bits = -1
    if not 0o400 <= bits <= 0o777:
        raise UsageError(f"--mode {text!r}: expected octal digits such as 0640")
    return bits


def _leave(done: Examination, name: str, out: Path, mode: int) -> None:
    """Writes the record whole, or not at all. Raises: CommandError."""
    from doctor.collect.node import record
    from doctor.collect.node_lines import written
    from doctor.config.atomic_write import write_whole

    data, path = record(done.run, os.environ), out
    try:
        if out == Path("-"):
            return _say(written(name, data))
        out.mkdir(parents=True, exist_ok=True)
        path = out / f"{name}.json"
        write_whole(path, data, mode)
    except OSError as error:
        raise CommandError(
            f"--out {path}: {error.strerror}; what this host is like was not written", NOT_WRITTEN
        ) from None


def _say(lines: Sequence[bytes]) -> None:
    """Some whole lines a write, of a size that a pipe takes at once. Raises: OSError."""
    sys.stdout.flush()
    for start in range(0, len(lines), AT_ONCE):
        data = b"".join(lines[start : start + AT_ONCE])
        while data:
            data = data[os.write(1, data) :]


def _stopped(done: Examination) -> int:
    """0, or the exit code of the signal that cut it short."""
    stop = done.stopped
    if stop is None:
        return 0
    return stop.code if isinstance(stop, SystemExit) and isinstance(stop.code, int) else 130

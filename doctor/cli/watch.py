"""`doctor watch`: three ways to a training program, which exclude each other."""

from __future__ import annotations

from typing import Annotated

import typer

from doctor.cli.host_options import ConnectionOptions, VisitOptions, validate_connection
from doctor.cli.launch_source import launch_line
from doctor.cli.output_options import OutputOptions
from doctor.cli.shared_options import expand_option_groups
from doctor.cli.watch_attach import AttachOptions
from doctor.cli.watch_log import LogOptions
from doctor.engine.errors import UsageError, require_one_of
from doctor.engine.sanitize import printable

ON_HANG = ("report", "dump", "end")
EXIT_ON = ("never", "fault")


@expand_option_groups
def command(
    *,
    targets: Annotated[
        list[str], typer.Argument(metavar="[FILE...|HOSTS]", help="The logs of --log; the hosts of --attach.")
    ] = [],  # noqa: B006 - typer's way
    attach: AttachOptions,
    log: LogOptions,
    on_hang: Annotated[
        str, typer.Option(metavar="|".join(ON_HANG), help="Report; also dump all stacks; or end the job, too.")
    ] = "dump",
    exit_on: Annotated[
        str, typer.Option(metavar="|".join(EXIT_ON), help="fault: end the job on any fault, not on a hang alone.")
    ] = "never",
    connection: ConnectionOptions,
    visit: VisitOptions,
    output: OutputOptions,
) -> None:
    """Watch a training program and name the rank that fails.

    `doctor watch -- torchrun --nproc-per-node 8 train.py` runs the command with a hook in its environment.

    Exit codes: that of COMMAND while nothing is found; 10 a fault was found; 2 usage; 130 interrupted.
    """
    require_one_of("--on-hang", on_hang, ON_HANG)
    require_one_of("--exit-on", exit_on, EXIT_ON)
    validate_connection(connection)
    words = launch_line()
    modes = {"--attach": attach.requested, "--log": log.requested, "a command after --": bool(words)}
    named = [name for name, given in modes.items() if given]
    if len(named) != 1:
        given = f"{' and '.join(named)} are both given" if named else "nothing to watch"
        raise UsageError(f"{given}: expected a command after --, for example doctor watch -- torchrun train.py")
    if targets and words:
        raise UsageError(f"{printable(targets[0], 60)!r}: expected no word before --, except options")
    if attach.requested:
        raise typer.Exit(attach.run(targets, connection, visit, output))
    if log.requested:
        raise typer.Exit(log.run(targets, output, stop_on_error=exit_on == "fault"))
    raise NotImplementedError

"""`doctor watch`: three ways to a training program, which exclude each other."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from doctor.cli.host_options import (
    ConnectionOptions,
    VisitOptions,
    require_finite,
    validate_connection,
    with_job_of_pods,
)
from doctor.cli.launch_source import launch_line
from doctor.cli.shared_options import OutputOptions, expand_option_groups
from doctor.cli.watch_options import AttachOptions, ChoiceOptions, LiveOption, LogOptions, live_notifier
from doctor.engine.errors import UsageError, require_one_of
from doctor.engine.exit_code import Exit
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled, joined
from doctor.session.finish import save_and_report, validate_output
from doctor.session.named_files import require_writable
from doctor.session.replay import Examination
from doctor.session.select_checks import load_catalog
from doctor.watch.command import warn
from doctor.watch.data_folder import require_schedule
from doctor.watch.data_outcomes import evaluate_watch
from doctor.watch.launch import WatchOptions, WatchOutcome, run
from doctor.watch.report_files import ReportFiles

ON_HANG = ("report", "dump", "end")
EXIT_ON = ("never", "fault")
FIRST_LOOK = "3"
"""Steps whose data is compared where nothing else is asked for: as many as every rule needs."""


@expand_option_groups(hidden=("from_file",))
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
    patience: Annotated[
        float,
        typer.Option(metavar="S", min=1, callback=require_finite, help="Least seconds without progress in a hang."),
    ] = 60.0,
    data: Annotated[
        str,
        typer.Option(metavar="N[,M]|off", help="Compare the data of the first N steps, and of every Mth; or of none."),
    ] = FIRST_LOOK,
    prometheus: Annotated[
        str, typer.Option("--prometheus", metavar="FILE", help="Write metrics of the live job there, each 10 s.")
    ] = "",
    live: LiveOption = False,
    untouched: Annotated[
        bool, typer.Option("--untouched", help="Leave the command's streams alone: no loss is read from them.")
    ] = False,
    choice: ChoiceOptions,
    connection: ConnectionOptions,
    visit: VisitOptions,
    output: OutputOptions,
) -> None:
    """Watch a training program and name the rank that fails.

    `doctor watch -- torchrun --nproc-per-node 8 train.py` runs the command with a hook in its environment.

    `doctor watch --log FILE...` follows the logs of a job that cannot be touched, and judges its loss.

    `doctor watch --attach [HOSTS]` looks at the ranks of a job that runs, and names the one that the others wait for.

    Exit codes: that of COMMAND while nothing is found; 10 a fault was found; 2 usage; 130 interrupted. Of --log and
    --attach: 0 nothing is wrong; 10 a fault; 12 undecided; 78 no loss, or no rank.
    """
    require_one_of("--on-hang", on_hang, ON_HANG)
    require_one_of("--exit-on", exit_on, EXIT_ON)
    connection, job = with_job_of_pods(connection, attach.job)
    attach = attach._replace(job=job)
    validate_connection(connection)
    command_line = launch_line()
    modes = {"--attach": attach.requested, "--log": log.requested, "a command after --": bool(command_line)}
    requested = [name for name, is_asked in modes.items() if is_asked]
    if len(requested) != 1:
        if not requested:
            raise UsageError(
                "nothing to watch: expected a command after --, for example doctor watch -- torchrun train.py"
            )
        problem = filled("{0} are both given", joined(" and ", requested))
        raise UsageError(
            filled("{0}: expected a command after --, for example doctor watch -- torchrun train.py", problem)
        )
    if targets and command_line:
        raise UsageError(filled("{0}: expected no word before --, except options", f"{printable(targets[0], 60)!r}"))
    if live and not command_line:
        raise UsageError(filled("--live shows the ranks of a command: expected it without {0}", requested[0]))
    if attach.requested:
        from doctor.cli.watch_attach import run_attach

        raise typer.Exit(run_attach(attach, targets, choice, connection, visit, output))
    from doctor.cli.watch_log import loss_options, run_log

    if log.requested:
        raise typer.Exit(run_log(log, targets, choice, output, stop_on_error=exit_on == "fault"))
    options = WatchOptions(
        on_hang=on_hang,  # type: ignore[arg-type]
        exit_on_fault=exit_on == "fault",
        patience=patience,
        always_report=bool(output.as_json or output.formats or output.save),
        place=printable(report_place(output), 400),
        metrics=prometheus,
        within=tuple(shlex.split(connection.within)),
        data="" if data == "off" else require_schedule(printable(data, 60)),
        reads_output=not untouched,
        losses=loss_options(log, choice),
        live=live,
        tell=live_notifier(output.notify, output.config, printable(" ".join(command_line), 200), redact=output.redact),
    )
    raise typer.Exit(_run(command_line, options, choice, output))


def _run(command_line: list[str], options: WatchOptions, choice: ChoiceOptions, output: OutputOptions) -> int:
    validate_output(output)
    if output.from_file:
        raise UsageError("--from reads a saved run; expected doctor report FILE")
    catalog = load_catalog([])
    chosen_checks = choice.chosen(catalog)
    if options.metrics:
        require_writable("--prometheus", options.metrics)
    files = ReportFiles(output_paths(output))

    def report(outcome: WatchOutcome) -> int:
        selected = [check for check in chosen_checks if check.name in outcome.checks]
        if not selected and not (outcome.data and outcome.data.concerns(chosen_checks)):
            return Exit.HEALTHY
        evaluated = evaluate_watch(outcome.run, selected, chosen_checks, outcome.data)
        return save_and_report(Examination(outcome.run, evaluated), catalog, _with_free_paths(output, files))

    return run(command_line, os.environ, options, report)


def output_paths(output: OutputOptions) -> list[str]:
    """The files that a report goes to.

    >>> output_paths(OutputOptions(formats=["json=/tmp/watch.json", "md"]))
    ['/tmp/watch.json']
    """
    return [text.partition("=")[2] for text in output.formats if "=" in text] + [str(output.save)] * bool(output.save)


def _with_free_paths(output: OutputOptions, files: ReportFiles) -> OutputOptions:
    """With other names for files that another report has written since the start of the watch; one line tells each."""
    places = {path: files.free_path(path) for path in output_paths(output)}
    for path, place in places.items():
        if place != path:
            warn(
                filled(
                    "{0} has another report that was written meanwhile; this one is {1}", printable(path, 300), place
                )
            )
    formats = [
        f"{name}={places[path]}" if path in places else name + equals + path
        for name, equals, path in (text.partition("=") for text in output.formats)
    ]
    return output._replace(formats=formats, save=Path(places[str(output.save)]) if output.save else None)


def report_place(output: OutputOptions) -> str:
    """Where the report is, for who reads it on another host.

    >>> report_place(OutputOptions(formats=["json=/tmp/watch.json"]))
    'stdout, /tmp/watch.json'
    """
    return ", ".join([*([] if output.quiet else ["stdout"]), *output_paths(output)]) or "nowhere: -q without -f"

"""``python -m doctor.smoke``: the smoke run on the ranks of a job, in the processes that its launcher has started.

Works under torchrun, torch.distributed.launch, mpirun, srun, msrun, or a shell that sets RANK and WORLD_SIZE (or
RANK_ID and RANK_SIZE). Without any of them it runs `doctor smoke`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Annotated

import msgspec
import typer

from doctor import __version__
from doctor.cli.main import main as run_command
from doctor.cli.main import run_guarded, run_parser
from doctor.cli.shared_options import (
    CheckOptions,
    NoHistoryOption,
    OutputOptions,
    expand_option_groups,
    history_options,
)
from doctor.cli.smoke import AREA, TrainingOptions, parse_smoke_options
from doctor.engine import interrupts
from doctor.engine.check import Check
from doctor.engine.errors import InputError, UsageError
from doctor.engine.record import SCHEMA, LaunchOptions, Run
from doctor.engine.texts import filled
from doctor.engine.utc_time import utc_text
from doctor.environment.job_context import JobContext, detect, for_spawned
from doctor.job.variables import relevant
from doctor.report.layout.progress_line import ProgressLine
from doctor.session.finish import save_and_report, validate_output
from doctor.session.replay import Examination, replay
from doctor.session.run_history import HistoryOptions
from doctor.session.select_checks import choose_checks, load_catalog
from doctor.smoke.model import SmokeResult
from doctor.smoke.rendezvous.launched import run_launched
from doctor.smoke.run.mindspore_run import reason_not_run
from doctor.smoke.run.round import not_started


def main() -> None:
    """Runs this process as a rank of its job, or `doctor smoke` outside of one."""
    job_context = detect(os.environ, as_rank=True)
    if not job_context.launcher:
        sys.argv = ["doctor", "smoke", *sys.argv[1:]]
        run_command()
    else:
        enter(job_context, sys.argv[1:])


def spawned(rank: int, world: int, argv: Sequence[str] = ()) -> None:
    """For ``torch.multiprocessing.spawn(spawned, (world,), world)``, and for whoever starts ranks by other means."""
    enter(for_spawned(os.environ, rank, world, job_id=str(os.getppid())), argv)


def enter(job_context: JobContext, argv: Sequence[str]) -> None:
    """Raises: SystemExit, unless all went well in a process that goes on afterwards."""
    app = typer.Typer(
        rich_markup_mode=None,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "obj": job_context},
    )
    app.command()(command)
    interrupts.raise_on_stop()
    try:
        run_guarded(lambda: run_parser(app, argv, "python -m doctor.smoke"))
    except SystemExit as stop:
        if stop.code:
            raise


@expand_option_groups
def command(
    *,
    context: typer.Context,
    training: TrainingOptions,
    choice: CheckOptions,
    local_rank: Annotated[int, typer.Option("--local-rank", "--local_rank", hidden=True)] = -1,
    output: OutputOptions,
    no_history: NoHistoryOption = False,
) -> None:
    """Train a tiny model in parallel on the ranks of this job, and name the rank that breaks it.

    Run it as the program of torchrun, torch.distributed.launch, mpirun, srun, msrun or a shell loop. Rank 0 reports;
    every process ends with the same exit code.

    Exit codes: as `doctor check`.
    """
    del local_rank  # torch.distributed.launch adds it to every command line; the environment has it, too
    _validate(training, output)
    smoke_options = parse_smoke_options(training, LaunchOptions())
    if any(choice):  # what is refused is refused here, and so on every rank
        choose_checks(load_catalog(choice.checks), choice.select, choice.ignore, roots=True)

    job_context: JobContext = context.obj
    progress = ProgressLine(1 if job_context.leads_ranks else 0, sys.stderr)

    def report(result: SmokeResult) -> int:
        progress.close()
        catalog = load_catalog(choice.checks)
        selected = choose_checks(catalog, choice.select or AREA, choice.ignore, roots=True)
        history = history_options("smoke", output, no_history)
        return _report(result, job_context, selected, catalog, output, history)

    try:
        code = run_launched(job_context, smoke_options, report, progress.stage)
    except ValueError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise InputError(filled("rank 0 cannot listen on any of the rendezvous ports: {0}", error)) from None
    raise typer.Exit(code)


def _validate(training: TrainingOptions, output: OutputOptions) -> None:
    """Raises: CommandError."""
    validate_output(output)
    if output.from_file:
        raise UsageError("--from reads a saved run, which needs no ranks; expected doctor smoke --from FILE")
    if training.devices:
        raise UsageError("--devices: the launcher assigns the devices of the ranks")


def _report(
    result: SmokeResult,
    job_context: JobContext,
    selected: list[Check],
    catalog: list[Check],
    output: OutputOptions,
    history: HistoryOptions | None,
) -> int:
    """Evaluates the run and prints the report. Returns the exit code."""
    why = reason_not_run(result)
    round_result = not_started(result.records, why) if why else None
    started = datetime.fromtimestamp(time.time() - result.run.seconds, timezone.utc)
    run = Run(
        SCHEMA,
        filled("{0}, {1} ranks", job_context.launcher, result.run.plan.world),
        utc_text(started),
        result.run.seconds,
        round_result.records if round_result else result.records,
        launch=LaunchOptions(environ=relevant(os.environ)),
        version=__version__,
        smoke=round_result.smoke if round_result else msgspec.to_builtins(result.run, str_keys=True),
    )
    examination = Examination(run, replay(run, selected), result.stopped)
    return save_and_report(examination, catalog, output, history=history, command="smoke")


if __name__ == "__main__":
    main()

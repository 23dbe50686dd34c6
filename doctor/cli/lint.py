"""`doctor lint`."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import msgspec
import typer

from doctor.cli.host_options import ProductOption, validate_product
from doctor.cli.shared_options import CheckOptions, OutputOptions, expand_option_groups
from doctor.engine.errors import UsageError
from doctor.engine.language import before_launch_line, localized_filled, phrase
from doctor.engine.record import LaunchOptions
from doctor.engine.result import NO_HOST
from doctor.engine.streams import print_stderr
from doctor.environment.inventory import Inventory
from doctor.job import LaunchConfig
from doctor.session.examine import examine
from doctor.session.examine_options import ExamineOptions
from doctor.session.finish import load_saved_run, replay_and_report, save_and_report, start_events, validate_output
from doctor.session.lint_files import job_scripts, launches_of, lint_rules
from doctor.session.select_checks import choose_checks, load_catalog
from doctor.session.training_files import read_training


@expand_option_groups
def command(
    *,
    files: Annotated[
        list[str] | None, typer.Argument(metavar="[FILES] [-- COMMAND]", help="Job scripts, configurations, programs.")
    ] = None,
    nodes: Annotated[
        int, typer.Option("--nodes", metavar="N", min=0, max=100000, help="Hosts of the job.", show_default=False)
    ] = 0,
    ranks_per_host: Annotated[
        int, typer.Option(metavar="N", min=0, max=100000, help="Ranks of the job per host.", show_default=False)
    ] = 0,
    product: ProductOption = "",
    choice: CheckOptions,
    output: OutputOptions,
) -> None:
    """Check a launch and its configuration; run nothing.

    No host is connected to.

    FILES are job scripts, folders with job scripts, Python programs, and configurations in JSON, YAML or TOML; COMMAND
    is a launch line, such as `torchrun --nnodes 2 train.py`. Files that a launch line names are read too. A value that
    only a run would show is not guessed: the rule that needs it is unknown, "not decided". --nodes and
    --ranks-per-host decide what a script takes from the scheduler. With --on-unknown ok, files that hold no training
    are left out, and exit code 0 stands for nothing to check as well.

    Exit codes: 0 healthy, 10 failed, 11 warnings (--strict), 12 unknown, 2 usage, 70 a bug of doctor, 78 unreadable
    input, 130 and 143 interrupted.
    """
    validate_product(product)
    validate_output(output, choice.checks)

    catalog = load_catalog(choice.checks)
    if output.from_file:
        run = load_saved_run(output.from_file)
        rules = lint_rules(catalog, has_table=bool(run.rank_table.text or run.other_rank_tables))
        selected = choose_checks(catalog, choice.select or rules, choice.ignore)
        raise typer.Exit(replay_and_report(run, selected, catalog, output, command="lint"))
    paths, launch_line = _split(files or [])
    paths = job_scripts(paths, _leave_out)
    if not paths and not launch_line:
        raise UsageError("nothing to check; expected files, or a launch line after --")

    counts = {name: number for name, number in (("nodes", nodes), ("ranks_per_node", ranks_per_host)) if number}
    leave_out = _leave_out if output.on_unknown == "ok" else None
    training = read_training(paths, launch_line, os.environ, counts, leave_out)
    launch = LaunchOptions(nodes=nodes or None, ranks_per_host=ranks_per_host or None, product=product)
    launches, notes = launches_of(paths, launch_line, launch, os.environ)
    if launches:
        launch = msgspec.structs.replace(launches[0], others=tuple(launches[1:]))
    has_table = any(os.path.isfile(LaunchConfig.from_options(each).rank_table_path) for each in launches or [launch])
    rules = lint_rules(catalog, has_launch=bool(launches), has_table=has_table)
    selected = choose_checks(catalog, choice.select or rules, choice.ignore)
    inventory = Inventory((), NO_HOST, notes=tuple(dict.fromkeys(notes)))
    events = start_events(output, (), selected, inventory.source)
    options = ExamineOptions(launch=launch, training=training)
    examination = examine(inventory, selected, options, {})
    raise typer.Exit(save_and_report(examination, catalog, output, events, command="lint"))


def _leave_out(why: str) -> None:
    print_stderr("doctor: " + phrase("{why}: left out", why=localized_filled(why)))


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Files, and the words after ``--``, which the parser hands over as one list."""
    first = len(arguments) - len(before_launch_line(sys.argv)[1][1:])
    return arguments[:first], arguments[first:]

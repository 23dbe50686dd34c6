"""The subcommands: wiring only. A subcommand's module is loaded when it is called, so that the rest stays quick."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Annotated

import typer

COMMANDS = {
    "check": "Check hosts: read each one over SSH, judge, report.",
    "smoke": "Train a tiny model in parallel on the hosts, and name the rank that breaks it.",
    "preflight": "Decide in a job script whether the job may start: one line, one exit code, within a budget.",
    "node": "Look at this host alone, without SSH, and report or leave a file for doctor merge.",
    "merge": "Judge a fleet by the files that doctor node left on each of its hosts.",
    "rank-table": "Make a rank table from what the hosts themselves say: checked, and whole or not at all.",
    "fix": "Mend what checks find: a plan first; with --apply the mending, proven by the same checks.",
    "report": "Show a saved run or report again: in any format, or beside an older one.",
    "list": "List the checks: name, severity, and what is so when all is well.",
    "explain": "Explain a check or a playbook: why it matters, what to do, what runs on the hosts.",
}


def application(argv: Sequence[str]) -> typer.Typer:
    """The command line for these words: whole for the subcommand among them, one line for each of the others."""
    app = typer.Typer(
        name="doctor",
        no_args_is_help=True,
        rich_markup_mode=None,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(root)
    command_name = next((word for word in argv if not word.startswith("-")), "")
    for name, summary in COMMANDS.items():
        function = import_module(f"doctor.cli.{name.replace('-', '_')}").command if name == command_name else _unloaded
        app.command(name, help=None if name == command_name else summary)(function)
    return app


def _unloaded() -> None:
    """Stands for a subcommand that these words do not call."""


def _version(requested: bool) -> None:
    if requested:
        from doctor import __version__

        typer.echo(f"cluster-doctor {__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and stop.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Tells what is wrong with a training cluster, where, why, and how to mend it."""

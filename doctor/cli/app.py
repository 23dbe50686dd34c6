"""The subcommands. A subcommand's module is loaded only when it is called, which keeps the start fast."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated

import typer

from doctor import __version__
from doctor.cli.help_groups import GroupedCommand
from doctor.engine.streams import write_stdout
from doctor.report.layout.terminal import terminal_width

COMMANDS = {
    "check": "Check hosts over SSH and report what is wrong.",
    "net": "Have the hosts try their network, and name what fails.",
    "smoke": "Train a tiny model on the hosts and name the rank that fails.",
    "watch": "Watch a training program and name the rank that fails.",
    "probe": "Write the probe, which a training program calls, as one file.",
    "root-helper": "Write the helper by which --sudo needs no right but one.",
    "preflight": "Gate a job: one line, one exit code, bounded time.",
    "lint": "Check a launch and its configuration; run nothing.",
    "node": "Check this host alone, or write its record for doctor merge.",
    "merge": "Evaluate the records that doctor node wrote on each host.",
    "rank-table": "Generate a validated rank table from live hosts.",
    "diagnose": "Name the rank and the cause from the logs of a job that failed.",
    "bundle-logs": "Collect in one archive what a vendor's support asks for.",
    "fix": "Plan fixes for findings; with --apply, run and verify them.",
    "report": "Render a saved run or report again, or compare two.",
    "rehearse": "Run the launch line with a stub; tell what each rank got.",
    "changes": "Tell what has changed since the job last worked.",
    "history": "Show what came, went and flapped over the runs of this user.",
    "baseline": "Show, export or import the speeds of this site's smoke runs.",
    "list": "List the checks, the playbooks or the log signatures.",
    "explain": "Explain a check, a playbook, a topic or an error code.",
}

HELP_COLUMNS = 50, 100
"""Of a help page, at least and at most; the library leaves two columns of the terminal empty."""

COMPLETION_OPTIONS = ("--install-completion", "--show-completion")
"""Options that typer adds where no subcommand is called; `doctor.cli.complete` answers the scripts they give out."""


def application(argv: Sequence[str]) -> typer.Typer:
    """The command line parser: complete for the called subcommand, one help line for each of the rest."""
    command_name = next((word for word in argv if not word.startswith("-")), "")
    least, most = HELP_COLUMNS
    width = max(least, min(terminal_width(sys.stdout, os.environ), most))
    app = typer.Typer(
        name="doctor",
        no_args_is_help=True,
        rich_markup_mode=None,
        add_completion=not command_name,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "terminal_width": width},
    )
    app.callback()(root)
    for name, summary in COMMANDS.items():
        function = import_module(f"doctor.cli.{name.replace('-', '_')}").command if name == command_name else _unloaded
        app.command(name, cls=GroupedCommand, help=None if name == command_name else summary)(function)
    return app


def _unloaded() -> None:
    """Placeholder of a subcommand that is not called."""


def _version(requested: bool) -> None:
    if requested:
        write_stdout(f"cluster-doctor {__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and stop.", callback=_version, is_eager=True)
    ] = False,
    lang: Annotated[
        str, typer.Option("--lang", metavar="en|zh|auto", help="Language, also after the command; auto: the locale's.")
    ] = "auto",
) -> None:
    """Finds out what is wrong with a training cluster, where, why, and how to fix it."""

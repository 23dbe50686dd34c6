"""The subcommands. A subcommand's module is loaded only when it is called, which keeps the start fast."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperOption

from doctor import __version__
from doctor.engine.streams import write_stdout
from doctor.engine.toml_compat import loads
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


COMMAND_GROUP = "Options"
"""The group of the options that one command alone has."""
MOST_OPTIONS = 12
"""So many are all shown by the short help."""
FILE = Path(__file__).with_name("help_groups.toml")


class HelpTable(NamedTuple):
    """What the table says."""

    groups: Mapping[str, frozenset[str]]
    """Long names of options by the title of their group."""
    common: frozenset[str]
    rare: frozenset[str]
    """Own options that the short help leaves out."""
    examples: Mapping[str, Sequence[tuple[str, str]]]
    """By command: a command line, and what it does."""


@cache
def help_table() -> HelpTable:
    """The content of `FILE`."""
    table = loads(FILE.read_text("utf-8"))
    groups = {title: text.split() for title, text in table["groups"].items()}
    return HelpTable(
        {
            COMMAND_GROUP: frozenset(),
            **{title: frozenset(word.rstrip("*") for word in flags) for title, flags in groups.items()},
        },
        frozenset(word.rstrip("*") for flags in groups.values() for word in flags if word.endswith("*")),
        frozenset(table["own"]["rare"].split()),
        {command: [(line, text) for line, text in lines] for command, lines in table["examples"].items()},
    )


def group_of(option: Any) -> str:
    """The title of an option's group."""
    names = long_names(option)
    return next((title for title, members in help_table().groups.items() if names & members), COMMAND_GROUP)


def long_names(option: Any) -> set[str]:
    """The names of an option that have two dashes, without them."""
    return {name[2:] for name in option.opts if name.startswith("--")}


def is_common(option: Any) -> bool:
    """Whether the short help shows an option."""
    names, table = long_names(option), help_table()
    return bool(names & table.common) or (group_of(option) == COMMAND_GROUP and not names & table.rare)


def grouped_options(options: Sequence[Any], every: bool) -> Iterator[tuple[str, list[Any]]]:
    """The titles of the groups with their options: all, or the common ones under one title."""
    if not every:
        yield COMMAND_GROUP, [option for option in options if is_common(option) or len(options) <= MOST_OPTIONS]
        return
    for title in help_table().groups:
        if members := [option for option in options if group_of(option) == title]:
            yield title, members


EXAMPLE_COLUMNS = 80


def example_lines(name: str, texts: dict[str, str] | None = None) -> list[str]:
    """The examples of a command, each a line for the shell; ``texts``: their comments in another language.

    Comments stand in a column where that is no wider than a terminal, else behind or above their lines.
    """
    examples = [(line, (texts or {}).get(text, text)) for line, text in help_table().examples.get(name, ())]
    width = max((len(line) for line, _ in examples), default=0)
    if any(len(f"  {'':{width}}  # {text}") > EXAMPLE_COLUMNS for _, text in examples):
        width = 0
    lines = []
    for line, text in examples:
        example = f"  {line:<{width}}  # {text}"
        lines += [example] if len(example) <= EXAMPLE_COLUMNS else [f"  # {text}", f"  {line}"]
    return lines


def _show_all(context: Any, _: Any, value: bool) -> None:
    if value and not context.resilient_parsing:
        context.meta[__name__] = True
        write_stdout(context.get_help() + "\n")
        context.exit()


class GroupedCommand(TyperCommand):
    """A command whose help shows its common options; ``--help-all`` shows all, where there are others."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if len(self.params) > MOST_OPTIONS:
            show_all = TyperOption(
                param_decls=["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_show_all,
                help="Show all options.", required=False, default=False, show_default=False,
            )  # fmt: skip
            self.params.append(show_all)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        parameters = self.get_params(ctx)
        arguments = [
            parameter.get_help_record(ctx) for parameter in parameters if parameter.param_type_name == "argument"
        ]
        options = [parameter for parameter in parameters if parameter.param_type_name == "option"]
        every = bool(ctx.meta.get(__name__))
        if any(arguments):
            with formatter.section("Arguments"):
                formatter.write_dl([record for record in arguments if record])
        for title, members in grouped_options(options, every):
            with formatter.section(title):
                formatter.write_dl([record for parameter in members if (record := parameter.get_help_record(ctx))])
        if lines := example_lines(self.name or ""):
            with formatter.section("Examples"):
                formatter.write("\n".join(lines) + "\n")


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

"""Help that fits a screen: the common options and examples; ``--help-all`` shows every option, in groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from typer.core import TyperCommand, TyperOption

from doctor.engine.streams import write_stdout
from doctor.engine.toml_compat import loads

COMMAND_GROUP = "Options"
"""The group of the options that one command alone has."""
MOST_OPTIONS = 12
"""So many are all shown by the short help."""
FILE = Path(__file__).with_suffix(".toml")


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

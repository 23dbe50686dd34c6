"""`doctor --help` is kept as text, for it is what people type first; the text is what the command line would print."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from doctor.cli.app import COMMANDS, application
from doctor.cli.main import HELP, run_fast_path
from tests.regen import help_text


def test_the_help_is_fresh() -> None:
    """If not: python -m tests.regen."""
    assert Path(HELP).read_text("utf-8") == help_text("--help")


@pytest.mark.parametrize("width", [80, 100])
def test_no_line_of_it_is_cut(width: int) -> None:
    usage, *lines = help_text("--help", width=width).splitlines()
    assert usage == "Usage: doctor [OPTIONS] COMMAND [ARGS]..."
    assert not [line for line in lines if line.endswith("...")]
    for name, summary in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(summary)}$", "\n".join(lines), re.M), name


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_in_it_with_the_first_line_of_its_own_help(name: str) -> None:
    first = help_text(name, "--help").split("\n\n")[1].strip()
    assert " ".join(first.split()) == COMMANDS[name]


@pytest.mark.parametrize("arguments", [[], ["check"], ["list", "--json"], ["--help", "list"], ["--version"]])
def test_all_else_goes_the_long_way(arguments: list[str]) -> None:
    assert not run_fast_path(arguments)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_zero_that_stands_for_none_is_not_shown_as_a_default(name: str) -> None:
    """`--port ... [default: 0]` reads as if port 0 were tried."""
    command: Any = typer.main.get_command(application([name]))
    riddles = [
        option.opts
        for option in command.commands[name].params
        if not getattr(option, "is_flag", False)
        and option.default == 0
        and option.show_default
        and "0" not in (option.help or "")
    ]
    assert riddles == []

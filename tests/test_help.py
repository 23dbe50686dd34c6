"""`doctor --help` is kept as text, for it is what people type first; the text is what the command line would say."""

from __future__ import annotations

import contextlib
import io

import pytest

from doctor.cli.app import COMMANDS, application
from doctor.cli.main import HELP, run_fast_path


def said(*words: str) -> str:
    """What the whole command line says to these words, at 100 columns."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), pytest.raises(SystemExit):
        application(words)([*words], prog_name="doctor", terminal_width=100)
    return out.getvalue()


def test_the_help_is_fresh() -> None:
    """If not: write what `said` returns to doctor/help.txt."""
    assert HELP.read_text("utf-8") == said("--help")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_in_it_with_the_first_line_of_its_own_help(name: str) -> None:
    first = said(name, "--help").split("\n\n")[1].strip()
    assert " ".join(first.split()) == COMMANDS[name]


@pytest.mark.parametrize("words", [[], ["check"], ["list", "--json"], ["--help", "list"], ["--version"]])
def test_all_else_goes_the_long_way(words: list[str]) -> None:
    assert not run_fast_path(words)

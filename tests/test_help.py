"""`doctor --help` is kept as text, for it is what people type first; the text is what the command line would print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from doctor.cli.app import COMMANDS, application, help_table, long_names
from doctor.cli.launch_source import take_launch_line
from doctor.cli.main import run_fast_path
from doctor.cli.saved_pages import HELP
from tests.regen import help_text


def test_the_help_is_fresh() -> None:
    assert Path(HELP).read_text("utf-8") == help_text("--help"), "hatch run regen"


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


@pytest.mark.parametrize("arguments", [["check"], ["list", "--json"], ["--help", "list"], ["--version"]])
def test_all_else_goes_the_long_way(arguments: list[str]) -> None:
    assert not run_fast_path(arguments)


@pytest.mark.parametrize("name", COMMANDS)
def test_what_reads_the_job_s_environment_reads_a_launch_line(name: str) -> None:
    """`doctor net HOSTS -- torchrun ...` was refused, as the list of such commands lacked it."""
    group: Any = get_command(application([name]))
    has_source = any("--job-script" in option.opts for option in group.commands[name].params)
    before = take_launch_line([name, "--", "torchrun", "train.py"])
    assert (before == [name]) == (has_source or name in ("watch", "rehearse"))
    take_launch_line([name])


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


COMMANDS_WITH_ALL = [name for name in COMMANDS if "--help-all" in help_text(name, "--help")]


def options_of(text: str) -> set[str]:
    """The options that a help text explains, by their long names."""
    return set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, re.M))


def test_the_help_of_check_fits_a_screen_and_says_where_the_rest_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        application(["check"])(["check", "--help"], prog_name="doctor")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) == 80
    assert any(line.split() == ["--help-all", "Show", "all", "options."] for line in lines)


@pytest.mark.parametrize("name", COMMANDS)
def test_no_line_of_a_help_is_wider_than_a_terminal(name: str) -> None:
    assert [line for line in help_text(name, "--help", width=80).splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_in_one_group_of_the_whole_help(name: str) -> None:
    group: Any = get_command(application([name]))
    options = [option for option in group.commands[name].params if option.param_type_name == "option"]
    full_help = help_text(name, "--help-all" if name in COMMANDS_WITH_ALL else "--help")
    assert {f"--{long}" for option in options for long in sorted(long_names(option))[:1]} <= {
        option for line in full_help.splitlines() for option in re.findall(r"--[\w-]+", line)
    }
    assert options_of(help_text(name, "--help")) <= options_of(full_help)


def test_the_table_names_options_and_commands_that_there_are() -> None:
    options: set[str] = set()
    for name in COMMANDS:
        group: Any = get_command(application([name]))
        parameters = group.commands[name].params
        options.update(*(long_names(option) for option in parameters if option.param_type_name == "option"))
    table = help_table()
    assert set().union(*table.groups.values()) <= options
    assert table.rare <= options
    assert set(table.examples) == set(COMMANDS)


@pytest.mark.parametrize(
    "line", [pytest.param(line, id=line) for lines in help_table().examples.values() for line, _ in lines]
)
def test_each_example_is_a_command_line_that_the_parser_takes(line: str, tmp_path: Path) -> None:
    _, name, *arguments = shlex.split(re.split(r"\|\|| >", line)[0])
    arguments = take_launch_line([name, *arguments])[1:]
    group: Any = get_command(application([name]))
    for word in ("PLAN", "run.json", "old.json", "train.sh", "train.log", "logs/", "hosts"):
        arguments = [str(tmp_path / word) if other == word else other for other in arguments]
    assert group.commands[name].make_context(name, arguments)


@pytest.mark.parametrize("name", ["check", "diagnose", "net", "preflight", "smoke", "watch"])
def test_the_help_of_a_command_fits_a_screen_of_80_columns(name: str) -> None:
    assert len(help_text(name, "--help", width=80).splitlines()) <= 45

"""The man page and the completion scripts, made from what ``--help`` prints: `python -m tests.regen` writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer._completion_shared import get_completion_script

from doctor import __version__
from doctor.cli.app import COMMANDS, application
from doctor.cli.complete import VARIABLE
from doctor.config.file import HISTORY_VARIABLE as HISTORY
from doctor.report.explain.topics import FOLDER, title, topics

PAGE = FOLDER / "man" / "doctor.1"
COMPLETIONS = {
    "bash": FOLDER / "completion" / "doctor.bash",
    "zsh": FOLDER / "completion" / "_doctor",
    "fish": FOLDER / "completion" / "doctor.fish",
}
ENVIRONMENT = {
    "DOCTOR_HOSTS, DOCTOR_HOSTFILE": "The hosts, where the command line names none.",
    "DOCTOR_CONFIG": "The settings file, in place of doctor.toml.",
    "DOCTOR_SKIP": "Checks that doctor preflight leaves out: names parted by commas, or all.",
    HISTORY: "off: no run is kept in the history.",
    "XDG_STATE_HOME": "Where state is kept; ~/.local/state without it.",
    "NO_COLOR": "No colour, unless --color always is given.",
}
FILES = {
    "./doctor.toml, ~/.config/doctor/doctor.toml, /etc/doctor/doctor.toml": "Waivers and settings; the first is read.",
    "~/.local/state/doctor": "The history of runs, plans and journals of fixes, the key of pseudonyms.",
}


def generated() -> Iterator[tuple[Path, str]]:
    """Each file and its content."""
    yield PAGE, man_page()
    for shell, path in COMPLETIONS.items():
        script = get_completion_script(prog_name="doctor", complete_var=VARIABLE, shell=shell)
        yield path, "\n".join(line.rstrip() if shell != "bash" else line for line in script.splitlines()) + "\n"


def escaped(text: str) -> str:
    r"""Text as roff takes it for what it is.

    >>> escaped(".a-b\\c")
    '\\&.a\\-b\\ec'
    """
    text = (
        text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga").replace("'", "\\(aq").replace("^", "\\(ha")
    )
    text = text.replace("~", "\\(ti")
    return f"\\&{text}" if text.startswith((".", "\\(aq")) else text


def man_page() -> str:
    """``doctor.1``."""
    lines = [
        f'.TH DOCTOR 1 "" "cluster\\-doctor {escaped(__version__)}" "User Commands"',
        ".nh",
        ".SH NAME",
        f"doctor \\- {escaped(_summary())}",
        ".SH SYNOPSIS",
        ".B doctor",
        "COMMAND [OPTIONS] [ARGUMENTS]",
        ".SH DESCRIPTION",
        "Reads all hosts of a training cluster at once, compares them with the rules of the vendors and with one",
        "another, and names the host at fault and the command that fixes it.",
        "Nothing changes on a host, unless",
        ".B doctor fix \\-\\-apply",
        "is called.",
        ".SH COMMANDS",
        *_definitions(COMMANDS),
    ]
    for name in COMMANDS:
        lines += [*_command(name)]
    lines += [".SH EXIT STATUS", *_definitions(_exit_codes())]
    lines += [".SH ENVIRONMENT", *_definitions(ENVIRONMENT), ".SH FILES", *_definitions(FILES), ".SH SEE ALSO"]
    lines += [
        ".B doctor explain",
        "TOPIC shows a page:",
        *_definitions({name: title(path) for name, path in topics().items()}),
    ]
    return "\n".join(lines) + "\n"


def _summary() -> str:
    from doctor.cli.app import root

    return (root.__doc__ or "").strip().rstrip(".")


def _definitions(entries: dict[str, str]) -> Iterator[str]:
    for term, text in entries.items():
        yield from (".TP", f".B {escaped(term)}", escaped(text))


def _command(name: str) -> Iterator[str]:
    group: Any = typer.main.get_command(application([name]))
    command = group.commands[name]
    context = command.make_context(name, [], resilient_parsing=True)
    usage = command.get_usage(context).partition("Usage: ")[2]
    yield from (f".SH DOCTOR {escaped(name.upper())}", f".B doctor {escaped(' '.join(usage.split()))}", ".PP")
    for number, paragraph in enumerate((command.help or "").split("\n\n")):
        if number:
            yield ".PP"
        yield escaped(" ".join(paragraph.split()))
    records = (parameter.get_help_record(context) for parameter in command.get_params(context))
    yield from _definitions({record[0]: " ".join(record[1].split()) for record in records if record})


def _exit_codes() -> dict[str, str]:
    """The table of the page on formats."""
    rows = re.findall(r"^\| ([\d to]+) \| (.+?) \|$", (FOLDER / "formats.md").read_text("utf-8"), re.M)
    return {code: re.sub(r"`", "", text) for code, text in rows}

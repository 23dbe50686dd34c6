"""A watched command in a container, started from its host by a command that enters it (``--within``).

The container must see the watch's folder at the same path. Its processes have numbers of their own: those on this
host are found by the page that each rank maps.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

from doctor.engine.bounded_run import run_bounded
from doctor.engine.errors import InputError
from doctor.engine.texts import filled
from doctor.remote.runtime.reading import read_text

_SCRIPT = 'PYTHONPATH="$1${PYTHONPATH:+:$PYTHONPATH}"; export PYTHONPATH; shift; exec env "$@"'
_ANSWER_SECONDS = 30.0
_MOST_MAPS = 1 << 17
"""Lines of a process's mappings that are read."""


def command_within(
    within: Sequence[str], hook: Path, variables: Mapping[str, str], command_line: Sequence[str]
) -> list[str]:
    """The command line that runs COMMAND in the container, with these variables and the hook first in its PYTHONPATH.

    >>> command_within(["docker", "exec", "c"], Path("/x/hook"), {"DOCTOR_WATCH": "/x"}, ["python", "t.py"])[-4:]
    ['/x/hook', 'DOCTOR_WATCH=/x', 'python', 't.py']
    """
    settings = [f"{name}={value}" for name, value in variables.items()]
    return [*within, "sh", "-c", _SCRIPT, "sh", str(hook), *settings, *command_line]


def require_shared_folder(within: Sequence[str], folder: Path) -> None:
    """Raises: InputError, where the container does not see the folder, or cannot be entered."""
    try:
        done = run_bounded([*within, "sh", "-c", 'test -w "$1"', "sh", str(folder)], _ANSWER_SECONDS, 1 << 16)
    except FileNotFoundError:
        raise InputError(filled("--within: {0}: no such program", within[0])) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(filled("--within: {0}: {1}", within[0], error)) from None
    if done.returncode:
        place = folder.parent.parent
        raise InputError(
            filled(
                "--within: the container does not see {0}, or may not write there: expected one that shares "
                "{1} with its host, such as docker run --ipc=host or -v {2}:{3}",
                folder,
                place,
                place,
                place,
            )
        )


def host_pid(number: int, page: Path) -> int:
    """The number that this host has for a process that is ``number`` in its container; 0 where it is not found."""
    try:
        about = page.stat()
    except OSError:
        return 0
    mapped = re.compile(rf"^\S+ \S+ \S+ \S+ {about.st_ino} ")
    for folder in Path("/proc").glob("[0-9]*"):
        status: str = read_text(f"{folder}/status", 4096)
        numbers = re.search(r"^NSpid:\t([\d\t]+)$", status, re.MULTILINE)
        if numbers is None or numbers[1].split()[-1] != str(number):
            continue
        if _maps(folder, page.name, mapped):
            return int(folder.name)
    return 0


def _maps(process: Path, name: str, mapped: re.Pattern[str]) -> bool:
    """Whether a process maps the page, by its name and the number of its file."""
    try:
        with (process / "maps").open(encoding="utf-8", errors="replace") as file:
            return any(name in line and mapped.match(line) for line in islice(file, _MOST_MAPS))
    except OSError:
        return False

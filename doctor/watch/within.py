"""A watched command in a container, started from its host by a command that enters it (``--within``).

The container must see the watch's folder at the same path. Its processes have numbers of their own: those on this
host are found by the page that each rank maps.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from doctor.engine.bounded_run import run_bounded
from doctor.engine.errors import InputError
from doctor.smoke.programs.agent.procfs import read_text

_SCRIPT = 'PYTHONPATH="$1${PYTHONPATH:+:$PYTHONPATH}"; export PYTHONPATH; shift; exec env "$@"'
_ANSWER_SECONDS = 30.0
_MOST_MAPS_BYTES = 16 << 20


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
        raise InputError(f"--within: {within[0]}: no such program") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"--within: {within[0]}: {error}") from None
    if done.returncode:
        place = folder.parent.parent
        raise InputError(
            f"--within: the container does not see {folder}, or may not write there: expected one that shares {place} "
            f"with its host, such as docker run --ipc=host or -v {place}:{place}"
        )


def host_pid(number: int, page: Path) -> int:
    """The number that this host has for a process that is ``number`` in its container; 0 where it is not found."""
    try:
        about = page.stat()
    except OSError:
        return 0
    mapped = re.compile(rf"^\S+ \S+ \S+ \S+ {about.st_ino} ", re.MULTILINE)
    for folder in Path("/proc").glob("[0-9]*"):
        status: str = read_text(f"{folder}/status", 4096)  # type: ignore[no-untyped-call]
        numbers = re.search(r"^NSpid:\t([\d\t]+)$", status, re.MULTILINE)
        if numbers is None or numbers[1].split()[-1] != str(number):
            continue
        maps: str = read_text(f"{folder}/maps", _MOST_MAPS_BYTES)  # type: ignore[no-untyped-call]
        if str(page.name) in maps and mapped.search(maps):
            return int(folder.name)
    return 0

"""Where a scheduler or launcher lists the hosts of a job, and how such a list is read.

A command that prints hosts, such as a scheduler's, runs here; tests and replays pass their own function.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence

import msgspec

from doctor.engine.bounded_read import ReadFile, unreadable_reason
from doctor.engine.bounded_run import TooMuchOutput, run_bounded
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled, joined
from doctor.environment.variables import EnvironmentVariables
from doctor.hosts import listed
from doctor.hosts.hostfile import HostLine, parse_hostfile

RunCommand = Callable[[Sequence[str]], str]
"""A command's output. Raises: OSError, where it is not installed, fails, or does not end."""

TIME_LIMIT = 30.0
"""Seconds."""
MAX_OUTPUT = 4 << 20
"""Bytes."""
_ENVIRON = {"ANSIBLE_INVENTORY_ENABLED": "ini,yaml", "LC_ALL": "C.UTF-8"}
"""Ansible reads an inventory, and does not run it, even if it is a program."""


def run_command(argv: Sequence[str], time_limit: float = TIME_LIMIT) -> str:
    """What the command prints, within ``time_limit`` in seconds and `MAX_OUTPUT`. Raises: OSError."""
    program = shutil.which(argv[0])
    if program is None:
        raise OSError(filled("{0} is not installed", argv[0]))
    command = " ".join(argv)
    try:
        done = run_bounded([program, *argv[1:]], time_limit, MAX_OUTPUT, {**os.environ, **_ENVIRON})
    except subprocess.TimeoutExpired:
        raise OSError(filled("{0} does not end", command)) from None
    except TooMuchOutput:
        raise OSError(filled("{0} prints more than {1} MiB", command, MAX_OUTPUT >> 20)) from None
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        why = lines[-1] if lines else filled("exit code {0}", done.returncode)
        raise OSError(filled("{0} fails: {1}", command, printable(why, 120)))
    return done.stdout.decode("utf-8", "replace")


Parse = Callable[[str, str], list[HostLine]]
"""The hosts in a text; the second argument is its place for messages. Raises: InventoryError."""


class HostList(msgspec.Struct, frozen=True):
    """One list: in a variable, in the file that a variable names, or in the output of a command."""

    source: str
    """The variable, or the command."""
    text: str = ""
    path: str = ""
    command: tuple[str, ...] = ()
    parse: Parse = listed.node_set
    ranks: bool = False
    """Its slots are ranks, not cores."""
    has_launch_node: bool = False
    """Its first host starts the ranks, and has none."""


class JobHosts(msgspec.Struct, frozen=True):
    """The hosts of one source. None: it names none, or they are unusable because of ``error``."""

    hosts: tuple[str, ...] | None = None
    source: str = ""
    slots: dict[str, int] = {}
    """Ranks by host, where the source says so."""
    error: str = ""
    problem: str = ""
    """Why no list of the scheduler or launcher can be read, and no other source names hosts."""
    is_of_user: bool = False
    """The user named them in a variable."""
    conflicts: tuple[str, ...] = ()


def in_files(variables: EnvironmentVariables, *names: str, ranks: bool = False) -> list[HostList]:
    """A list for each of the variables that names a file."""
    return [
        HostList(name, path=variables.text(name), parse=parse_hostfile, ranks=ranks)
        for name in names
        if name in variables
    ]


def read_host_lists(lists: Sequence[HostList], read_file: ReadFile, run: RunCommand = run_command) -> JobHosts:
    """The hosts of the first list that can be read. Raises: InventoryError for a list that makes no sense."""
    problems: list[str] = []
    for host_list in lists:
        try:
            text = _text(host_list, read_file, run)
        except (OSError, ValueError) as error:
            problems.append(filled("{0}: {1}", _name(host_list), unreadable_reason(error)))
            continue
        place = printable(host_list.path, 200) if host_list.path else host_list.source
        lines = host_list.parse(text, place)
        lines = (host_list.has_launch_node and lines[1:]) or lines
        slots = {line.host: line.slots for line in lines if line.slots} if host_list.ranks else {}
        return JobHosts(tuple(line.host for line in lines), _name(host_list), slots)
    return JobHosts(problem=joined("; ", problems))


def _text(host_list: HostList, read_file: ReadFile, run: RunCommand) -> str:
    if host_list.command:
        return run(host_list.command)
    return read_file(host_list.path) if host_list.path else host_list.text


def _name(host_list: HostList) -> str:
    return f"{host_list.source}={printable(host_list.path, 200)}" if host_list.path else host_list.source

"""Runs a command that prints hosts, such as a scheduler's; tests and replays pass their own function."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence

from doctor.engine.bounded_read import plain_lines, read_bounded
from doctor.engine.bounded_run import TooMuchOutput, run_bounded
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.job.launch_line import LaunchLine

RunCommand = Callable[[Sequence[str]], str]
"""A command's output. Raises: OSError, where it is not installed, fails, or does not end."""

TIME_LIMIT = 30.0
"""Seconds."""
MAX_OUTPUT = 4 << 20
"""Bytes."""
_ENVIRON = {"ANSIBLE_INVENTORY_ENABLED": "ini,yaml", "LC_ALL": "C.UTF-8"}
"""Ansible reads an inventory, and does not run it, even if it is a program."""


_OPENMPI = ("orterun", "prterun", "mpirun.openmpi")
_ROOT_MAY = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")


def openmpi_program(command: str) -> str:
    """The file of a command of this host that is surely Open MPI's, by its name behind all links; else empty."""
    program = os.path.realpath(shutil.which(command) or "/")
    return program if os.path.basename(program) in _OPENMPI else ""


def openmpi_slots(command: str, pattern: str = "/sys/devices/system/cpu/cpu*/topology/thread_siblings_list") -> int:
    """Ranks that Open MPI starts here without a list of hosts: one for each core; 0 where that is not known.

    Source: Open MPI, mpirun(1), "Slots". Its own files of parameters may lift the limit.
    """
    if not openmpi_program(command) or "oversubscribe" in _parameters(command):
        return 0
    return len({_text(path) for path in glob.glob(pattern)} - {""})


def _parameters(command: str) -> str:
    """Open MPI's files of parameters."""
    paths = ("/etc/openmpi/openmpi-mca-params.conf", os.path.expanduser("~/.openmpi/mca-params.conf"))
    beside = os.path.join(os.path.dirname(os.path.dirname(openmpi_program(command))), "etc/openmpi-mca-params.conf")
    return "\n".join(map(_text, (*paths, beside)))


def openmpi_refusals(line: LaunchLine, environ: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """What the Open MPI of a line's first command refuses on this host: option or variable, value, what is expected.

    What the line itself sets or removes may be meant for the ranks, and a relative path for another folder.
    Sources: Open MPI, mpirun(1), "--allow-run-as-root"; the rest was measured with 4.1.4, which makes the folder of its
    session in TMPDIR, also where TMPDIR is not there yet.
    """
    call = line.launchers[0]
    if not openmpi_program(call.command):
        return []
    of_all = {**environ, **line.environ}
    is_allowed = "allow-run-as-root" in call.options or all(of_all.get(name) == "1" for name in _ROOT_MAY)
    refusals = [("!--allow-run-as-root", "", "the option, as the user is root")]
    refusals = [] if is_allowed or os.geteuid() or "options" in call.unresolved else refusals
    for name in ("rankfile", "app"):
        path = call.option(name)
        if path and (os.path.isabs(path) or not line.wrappers) and not os.path.exists(path):
            refusals.append((f"--{name}", path, "a file"))
    prefix, temporary = (
        "" if name in line.environ or name in line.removed else environ.get(name, "")
        for name in ("OPAL_PREFIX", "TMPDIR")
    )
    if prefix and not os.path.isdir(prefix):
        refusals.append(("OPAL_PREFIX", prefix, "the folder of Open MPI"))
    named = (*of_all, *call.options.get("mca", ()), _parameters(call.command))
    if temporary and not _may_make(temporary) and not any("tmpdir_base" in text for text in named):
        refusals.append(("TMPDIR", temporary, "a folder that this user may write to"))
    return [(option, printable(value, 200), expected) for option, value, expected in refusals]


def _may_make(folder: str) -> bool:
    """Whether this user may write there, or make it."""
    folder = os.path.abspath(folder)
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


def _text(path: str) -> str:
    """Lines that count; empty where there is no such file."""
    try:
        lines = plain_lines(read_bounded(path, 1 << 16).decode("utf-8", "replace")).splitlines()
    except (OSError, ValueError):
        return ""
    return "\n".join(line for line in lines if not line.lstrip().startswith("#"))


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
        raise OSError(
            filled(
                "{0} fails: {1}",
                command,
                printable(lines[-1] if lines else filled("exit code {0}", done.returncode), 120),
            )
        )
    return done.stdout.decode("utf-8", "replace")

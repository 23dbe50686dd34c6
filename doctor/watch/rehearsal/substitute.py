"""A launch line with another program in the place of its own: new_argv are replaced, and nothing is run. Pure.

What cannot be followed word by word is refused: a line is never run in which the user's own program may still stand.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from doctor.engine.bounded_read import read_bounded
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.job.job_script import NotAJobScript, read_job_script
from doctor.job.launch_line import LaunchLine, NotALaunchLine, read_launch_line
from doctor.job.shell.script_evaluation import evaluate
from doctor.job.shell.word import literal_words

SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
_MODULE_FLAGS = ("-m", "--module")
_LOG_OPTIONS = {
    "torchrun": ("--log-dir", "--log_dir"),
    "msrun": ("--log_dir",),
    "srun": ("--output", "--error", "-o", "-e"),
    "openmpi": ("--output-filename", "-output-filename"),
    "deepspeed": ("--enable_each_rank_log",),
}
"""Options by which a launcher writes files where those of the job shall lie: a rehearsal has a folder of its own."""
_ALWAYS = {
    "msrun": ("--log_dir", ("msrun",)),
    "torchrun": ("--log_dir", ("torchrun", "torch.distributed.run", "torch.distributed.launch")),
}
"""Without this option msrun writes its logs into the working folder, and torchrun makes a folder in the temporary one
that stays (``DefaultLogsSpecs`` in torch/distributed/elastic/multiprocessing/api.py). And the words before it."""


class CannotRehearse(ValueError):
    """A line in which the program cannot be replaced: why."""


class Rehearsed(NamedTuple):
    """A line that can be run."""

    argv: tuple[str, ...]
    environ: Mapping[str, str]
    line: LaunchLine
    program: str
    """The path that stands in the place of the program."""
    where: str = ""
    """The script and line that it stands in; empty for the words after ``--``."""


def rehearsed_line(argv: Sequence[str], environ: Mapping[str, str], stub: str, logs: str) -> Rehearsed:
    """The line with a stub. ``stub``: the file's name; it lies beside the program. ``logs``: a folder for logs.

    Raises: CannotRehearse.
    """
    try:
        line = read_launch_line(argv, environ)
    except NotALaunchLine as error:
        raise CannotRehearse(str(error)) from None
    if _is_script(line, argv):
        return _of_script(line, environ, stub, logs)
    return _replaced(argv, environ, line, stub, logs)


def _is_script(line: LaunchLine, argv: Sequence[str]) -> bool:
    """``bash run.sh`` or ``./run.sh``: a shell script alone, which has the launch line in it."""
    if line.launchers or line.wrappers or not line.program:
        return False
    return os.path.basename(line.interpreter) in SHELLS or (not line.interpreter and line.program.endswith(".sh"))


def _of_script(line: LaunchLine, environ: Mapping[str, str], stub: str, logs: str) -> Rehearsed:
    name, arguments = printable(line.program, 200), literal_words(line.arguments)
    try:
        text = read_bounded(line.program, 1 << 20).decode("utf-8")
        script = read_job_script(text, environ, arguments)
    except (OSError, ValueError, NotAJobScript) as error:
        raise CannotRehearse(filled("{0}: {1}", name, getattr(error, "strerror", None) or error)) from None
    job_line = script.job_line
    if job_line is None:
        raise CannotRehearse(filled("{0}: {1}", name, script.refusal or "no launch line was found in it"))
    commands = [command for command in evaluate(text, environ, arguments).commands if command.line == job_line.line]
    if len(commands) != 1:
        raise CannotRehearse(filled("{0}, line {1}: more than one command; expected one", name, job_line.line))
    (command,) = commands
    unknown = next((word.unresolved for word in command.argv if word.unresolved), "")
    unknown = unknown or next(iter(command.unresolved.values()), "")
    if unknown:
        raise CannotRehearse(
            filled("{0}, line {1}: only a shell knows {2}", name, job_line.line, printable(unknown, 200))
        )
    inside = {name: value for name, value in {**environ, **command.environ}.items() if name not in command.unset}
    new_argv = [word.text for word in command.argv]
    del new_argv[: new_argv[0] == "exec"]
    rehearsed = _replaced(new_argv, inside, read_launch_line(new_argv, inside), stub, logs)
    return rehearsed._replace(where=filled("{0}, line {1}", name, job_line.line))


def _replaced(argv: Sequence[str], environ: Mapping[str, str], line: LaunchLine, stub: str, logs: str) -> Rehearsed:
    if not line.program or "program" in line.unresolved or line.program == "-c":
        why = line.unresolved.get("program", "none is named")
        raise CannotRehearse(filled("the program of the launch line is not known: {0}", printable(why, 200)))
    if os.path.basename(line.interpreter) in SHELLS or line.program.endswith((".sh", ".bash")):
        raise CannotRehearse(
            filled(
                "{0} is a shell script that each rank runs: what it starts is not known", printable(line.program, 200)
            )
        )
    tail = (line.program, *line.arguments)
    start = len(argv) - len(tail)
    if start < 0 or tuple(argv[start:]) != tail:
        raise CannotRehearse(
            filled("{0} stands in a shell text; expected it among the words of the line", printable(line.program, 200))
        )
    head = list(argv[:start])
    if line.program in head and line.program not in _values_before(head):
        raise CannotRehearse(filled("{0} stands in the line twice", printable(line.program, 200)))
    head = _own_logs(head, line, logs)
    path = stub if line.is_module else os.path.join(os.path.dirname(line.program), stub)
    if line.is_module:
        head, path = _without_module_flag(head), os.path.join(os.getcwd(), stub)
    runs_python = bool(line.interpreter) or (
        line.innermost is not None and line.innermost.launcher in _PYTHON_LAUNCHERS
    )
    starter = [] if runs_python and not _is_plain(line) else ["python3"]
    new_argv = (*head, *starter, path, *line.arguments)
    _require_replaced(new_argv, environ, stub)
    return Rehearsed(new_argv, environ, line, path)


def _require_replaced(new_argv: Sequence[str], environ: Mapping[str, str], stub: str) -> None:
    """Raises: CannotRehearse where the reader of launch lines does not find the stub as the program of the new line."""
    try:
        program = read_launch_line(new_argv, environ).program
    except NotALaunchLine as error:
        raise CannotRehearse(str(error)) from None
    if os.path.basename(program) != stub:
        raise CannotRehearse("its program cannot be replaced with certainty")


_PYTHON_LAUNCHERS = ("torchrun", "msrun", "accelerate", "deepspeed", "colossalai")
"""They run their program in Python by themselves."""


def _is_plain(line: LaunchLine) -> bool:
    """Whether an option of the launcher says that the program is not a Python script."""
    call = line.innermost
    return not line.interpreter and call is not None and bool({"no-python", "no_python"} & call.options.keys())


def _values_before(head: Sequence[str]) -> tuple[str, ...]:
    """Words that are values of options: of them a program's name is none."""
    return tuple(word for before, word in pairwise(head) if before.startswith("-"))


def _without_module_flag(head: list[str]) -> list[str]:
    places = [position for position, word in enumerate(head) if word in _MODULE_FLAGS]
    if not places:
        raise CannotRehearse("no -m before the module; expected one")
    return head[: places[-1]] + head[places[-1] + 1 :]


def _own_logs(head: list[str], line: LaunchLine, logs: str) -> list[str]:
    """The words with every folder and file for logs in ``logs``."""
    place = os.path.join(logs, "log")
    for call in line.launchers:
        for option in _LOG_OPTIONS.get(call.launcher, ()):
            for position, word in enumerate(head):
                if word == option and position + 1 < len(head):
                    head[position + 1] = place
                elif word.startswith(f"{option}="):
                    head[position] = f"{option}={place}"
        always, starters = _ALWAYS.get(call.launcher, ("", ()))
        named = [position for position, word in enumerate(head) if os.path.basename(word) in starters]
        if named and not any(word.replace("-", "_").startswith(always.replace("-", "_")) for word in head):
            head.insert(named[0] + 1, f"{always}={place}")
    return head

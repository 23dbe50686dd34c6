"""Runs a command that prints hosts, such as a scheduler's; tests and replays pass their own function."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence

from doctor.engine.bounded_read import plain_lines
from doctor.engine.bounded_run import TooMuchOutput, run_bounded
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.job.job_size import OF_STEP, STARTS_TASKS
from doctor.job.launch_line import LaunchLine
from doctor.job.launch_line.commands import launcher_rows
from doctor.job.launch_line.model import LaunchCall, OptionProblem
from doctor.job.launch_line.options import split_options
from doctor.job.shell.word import literal_words

RunCommand = Callable[[Sequence[str]], str]
"""A command's output. Raises: OSError, where it is not installed, fails, or does not end."""

TIME_LIMIT = 30.0
"""Seconds."""
MAX_OUTPUT = 4 << 20
"""Bytes."""
_ENVIRON = {"ANSIBLE_INVENTORY_ENABLED": "ini,yaml", "LC_ALL": "C.UTF-8"}
"""Ansible reads an inventory, and does not run it, even if it is a program."""


_OPENMPI = ("orterun", "prterun", "mpirun.openmpi")
_TRIAL_SECONDS = 30.0
"""slurmctld may be busy for longer than the 10 s of its MessageTimeout, after which srun asks it again."""
_MOST_LETTERS = 300
_SAME_USER = {"env", "exec", "nice", "nohup", "numactl", "stdbuf", "taskset", "time", "timeout"}
"""Commands that run another one as the same user, on the same host."""
_READ_ALONE = re.compile(r"container|bcast$|multi-prog$|no-allocate$|pty$|x11$")
"""Options of srun that run or copy more than the program: with them it reads its options alone."""
_HOOKS = {"prolog": "none", "epilog": "none", "task-prolog": "/bin/true", "task-epilog": "/bin/true"}
"""Options of srun that run a program of the user: what runs none in its place."""
_STREAMS = {"output": "SLURM_STDOUTMODE", "error": "SLURM_STDERRMODE", "input": "SLURM_STDINMODE"}
"""Options of srun that name a file, and the variable for each: of the last the file is needed, else its folder."""
_WAITS = re.compile(r"(?i)nodes are busy|temporarily|timed out|unable to contact")
"""Of a step that srun would try to start again."""
_MAP = "JOB MAP"
_INTERACTIVE = "4294967290"
"""The step of salloc's own shell: SLURM_INTERACTIVE_STEP of slurm.h."""
_ROOT = ("!--allow-run-as-root", "", "the option, as the user is root")
TRIAL, WAITS = "=", "=?"
"""In place of an option: the launcher itself was asked, and refuses, or would wait; the value is what it says, and then
the command."""


def launch_trial(
    line: LaunchLine, argv: Sequence[str], environ: Mapping[str, str], *, is_next: bool = False
) -> list[str]:
    """The command that asks the first launcher of a line whether it would start it; empty where none can.

    mpirun maps the ranks, and starts nothing; srun starts ``/bin/true`` in the allocation of this shell, and where
    there is none asks for the time of one. Sources: Open MPI, mpirun(1), "--do-not-launch"; Slurm, srun(1),
    "--test-only", "--immediate". ``is_next``: the shell that called doctor runs the line next, so that its PATH counts.
    """
    call = line.launchers[0] if line.launchers and {word.split()[0] for word in line.wrappers} <= _SAME_USER else None
    places = [at for at, word in enumerate(argv) if call is not None and os.path.basename(word) == call.command]
    if call is None or not places or "options" in call.unresolved:
        return []
    command, start = argv[places[0]], places[0] + 1
    of_wrappers = {} if "PATH" in call.environ else line.environ  # what srun exports helps nothing to be found
    path = {**environ, **of_wrappers}.get("PATH", os.environ.get("PATH", os.defpath))
    program = shutil.which(command, path=path) or ""
    if not program and (call.launcher in STARTS_TASKS if "/" in command else is_next):
        return ["sh", "-c", 'type "$0"', command]
    if call.launcher == "openmpi" and os.path.basename(os.path.realpath(program)) in _OPENMPI:
        return [*argv[:start], "--do-not-launch", *argv[start:]]
    if call.command != "srun" or not program or environ.get(OF_STEP, _INTERACTIVE) != _INTERACTIVE:
        return []
    is_inside = "SLURM_JOB_ID" in environ or "jobid" in call.options
    rest = split_options(call.command, literal_words(argv[start:]), launcher_rows()["srun"]).rest
    if is_next and rest and _no_task_finds(rest[0].text, call, path, environ):
        return ["sh", "-c", 'type "$0"', rest[0].text]
    options = ["--immediate=5", "--output=none", "--error=none", "--input=none"] if is_inside else ["--test-only"]
    options += [f"--{name}={idle}" for name, idle in _HOOKS.items() if name in call.options]
    options = ["--help"] if any(map(_READ_ALONE.match, call.options)) else options
    return [*argv[: len(argv) - len(rest)], *options, "/bin/true"]


def _no_task_finds(program: str, call: LaunchCall, path: str, environ: Mapping[str, str]) -> bool:
    """Whether no folder of srun's PATH has this program, nor that in which it starts.

    A container has programs of its own, and a hook before the task may set its PATH.
    """
    if "/" in program or any(map(_READ_ALONE.match, call.options)):
        return False
    if "task-prolog" in call.options or "SLURM_TASK_PROLOG" in environ:
        return False
    return not shutil.which(program, path=os.pathsep.join((path, call.option("chdir") or os.getcwd())))


def launch_refusals(
    line: LaunchLine, argv: Sequence[str], environ: Mapping[str, str], *, is_next: bool = False
) -> list[OptionProblem]:
    """What the first launcher of a line says where it does not start it; `TRIAL` without a value: no answer in time.

    ``is_next``: the shell that called doctor runs the line next.
    """
    if not (trial := launch_trial(line, argv, environ, is_next=is_next)):
        return []
    call, command = line.launchers[0], line.launchers[0].command
    for name, variable in _STREAMS.items() if call.launcher == "srun" else ():
        path = call.option(name) or environ.get(variable, "")
        needed, is_there = (path, os.path.exists) if name == "input" else (os.path.dirname(path), os.path.isdir)
        if os.path.isabs(needed) and "%" not in needed and not is_there(needed):
            expected = "a file that is there" if name == "input" else "a folder that is there"
            return [OptionProblem(command, f"--{name}", printable(needed, 200), expected)]
    try:
        done = run_bounded(trial, _TRIAL_SECONDS, MAX_OUTPUT, {**environ, "LC_ALL": "C.UTF-8"}, os.getcwd())
    except (OSError, subprocess.TimeoutExpired):
        return [OptionProblem(command, TRIAL, "", shlex.join(trial))]
    text = plain_lines((done.stderr + done.stdout).decode("utf-8", "replace"))
    maps = _MAP in text or "-----" not in text  # Open MPI 4 may end with 0 where it maps nothing, and frames the reason
    if (maps and not done.returncode) or "do-not-launch" in text.partition("unrecognized")[2]:
        return []
    if "run as root" in text:
        return [OptionProblem(command, *_ROOT)]
    prefix = environ.get("OPAL_PREFIX") if "unknown option" in text else ""  # without its files it knows no option
    reason = f"OPAL_PREFIX={printable(prefix, 100)}: {_message(text)}" if prefix else _message(text)
    return [OptionProblem(command, WAITS if _WAITS.search(text) else TRIAL, reason, shlex.join(trial))]


def _message(text: str) -> str:
    """The first errors of a launcher, in one line."""
    lines = [re.sub(r"^\S+: (?:error|fatal): ", "", line) for line in text.splitlines() if re.search(r"\w", line)]
    return printable(" ".join(dict.fromkeys(line.strip() for line in lines)), _MOST_LETTERS)


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

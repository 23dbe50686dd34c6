"""What a job script needs before its launch line, and where that starts: shells are asked, nothing of it is run."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence

import msgspec

from doctor.engine.bounded_read import plain_lines, read_bounded_text
from doctor.engine.record import OptionProblem
from doctor.engine.texts import filled
from doctor.environment.launch_trials import absent_command, run_trial, trial_message, wrapper_refused
from doctor.job.launch_line import LaunchLine
from doctor.job.launch_line.model import NOT_BASH
from doctor.job.shell.plain_sh import shell_of
from doctor.job.shell.word import ASKS_FOR_FILES

_OF_STEP = {
    **dict.fromkeys(("cd", "pushd"), 'cd "$@"'),
    **dict.fromkeys(("source", "."), 'IFS=:; for folder in $PATH; do test -r "$folder/$1" && exit; done; : < "$1"'),
    **dict.fromkeys(("<", "<>"), ': < "$1"'),
    **{name: f'{name} "$@"' for name in ("ulimit", *ASKS_FOR_FILES)},
    "type": 'type "$1" > /dev/null',
    "$": 'declare -p "$1" > /dev/null',
}
"""By what a script does before its launch line: the same for bash alone, with nothing of the script run."""
_MOST_STEPS = 16


def shell_refused(path: str, line: int, environ: Mapping[str, str]) -> tuple[OptionProblem, ...]:
    """What the ``sh`` of a script's first line says of its text, which it reads and does not run; dash is no bash.

    A warning, unless that shell runs this process: a user may start the script by ``bash``. What stands behind the
    ``line`` of the launch is read after it.
    """
    text = read_bounded_text(path) if os.path.isfile(path) else ""
    if not (shell := shell_of(text)):
        return ()
    before = "\n".join(text.split("\n", line)[:line])
    sets = "<<" not in before and re.search(r"(?m)^set -[a-z]*o pipefail\b", before)
    for words in [["-n", path], *([["-c", "set -o pipefail"]] if sets else [])]:
        done = run_trial([shell, *words], environ)
        if done is not None and done.returncode:
            reason = trial_message(plain_lines(done.stderr.decode("utf-8", "replace")))
            at = re.search(r": (?:line )?([0-9]{1,7}): ", reason)
            if words[0] == "-n" and at and int(at[1]) > line:
                continue
            runs_this = os.path.realpath(f"/proc/{os.getppid()}/exe") == os.path.realpath(shell)
            return (
                OptionProblem(
                    os.path.basename(shell), "", reason, shlex.join([shell, *words]), "trial" if runs_this else "waits"
                ),
            )
    return ()


def script_refused(line: LaunchLine, environ: Mapping[str, str]) -> OptionProblem | None:
    """What ends a script on this host before its launch line runs: a file or a folder that is not there, a limit that
    cannot be raised, a variable that nothing sets, a launcher or a Python that its PATH does not have.
    """
    for need in [need for need in line.needs if need.ends][:_MOST_STEPS]:
        kind, arguments = (need.kind, need.arguments) if need.kind in _OF_STEP else ("cd", _folder_of(need.arguments))
        trial = ["bash", "-c", _OF_STEP[kind], "bash", *arguments]
        done = run_trial(trial, environ, need.folder)
        if done is not None and done.returncode:
            text = re.sub(r"(?m)^bash: line \d+: ", "", plain_lines(done.stderr.decode("utf-8", "replace")))
            reason = trial_message(text) or filled("{0}: not found", arguments[kind in ASKS_FOR_FILES])
            return OptionProblem("bash", "", filled("line {0}: {1}", need.line, reason), shlex.join(trial), "trial")
    path = line.environ.get("PATH", environ.get("PATH", ""))
    if not line.is_first or "PATH=" in line.unresolved:
        return wrapper_refused(line, environ, is_of_script=True)
    if not (absent := absent_command(line, {**environ, "PATH": path}, is_next=True)) or "/" in absent:
        return wrapper_refused(line, {**environ, "PATH": f"{path}:{environ.get('PATH', '')}"})
    ask = shlex.join(("env", f"PATH={path}", "/bin/sh", "-c", 'type "$0"', absent))
    reason = filled("line {0}: {1}", line.line, filled("{0}: not found", absent))
    return OptionProblem("bash", "", reason, ask, "trial")


def before_line(line: LaunchLine, environ: Mapping[str, str]) -> tuple[OptionProblem, ...]:
    """What ends a script before its launch line on this host, beside the problems that the line has."""
    for need in line.needs:
        if need.kind == "()":
            name = f"{need.arguments[0]}()"
            return (OptionProblem("bash", name, filled("in line {0}", need.line), filled("a call of it")),)
    refused = None if line.problems or line.conditional else script_refused(line, environ)
    return (refused,) if refused else ()


def _folder_of(arguments: Sequence[str]) -> tuple[str, ...]:
    return ("--", os.path.dirname(arguments[0]) or ".")


def told_of_sh(line: LaunchLine, refused: Sequence[OptionProblem], next_path: str) -> list[OptionProblem]:
    """The problems of a line, without what dash does not know where the sh of this host was asked, or is no dash."""
    is_asked = refused or (next_path and os.path.basename(os.path.realpath("/bin/sh")) != "dash")
    return [problem for problem in line.problems if problem.option != NOT_BASH or not is_asked]


def behind(outer: LaunchLine, inner: LaunchLine) -> LaunchLine:
    """The line of a script with what stands before the line that runs the script."""
    folders = (outer.start_folder, inner.start_folder) if outer.start_folder else ("", "")
    return msgspec.structs.replace(
        inner,
        start_folder=os.path.join(*folders) if inner.start_folder else "",
        makes_files=outer.makes_files or inner.makes_files,
        is_first=outer.is_first and inner.is_first,
    )


def start_folder(line: LaunchLine, next_path: str) -> str:
    """The absolute path of the folder of a script's line; empty where that is not sure.

    A script that runs next starts here, unless its program lies beside it alone: it may be meant to start there.
    """
    here, is_absolute = os.getcwd() if next_path else "", os.path.isabs(line.start_folder)
    beside = os.path.join(os.path.dirname(next_path), line.start_folder, line.program)
    folder = os.path.join(here, line.start_folder) if line.start_folder and here else ""
    is_elsewhere = os.path.lexists(beside) and not os.path.lexists(os.path.join(folder, line.program))
    return line.start_folder if is_absolute else "" if is_elsewhere else os.path.normpath(folder) if folder else ""

"""What ends a job script before its launch line, and where that starts: shells are asked, no program of it is run."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from doctor.engine.bounded_read import plain_lines, read_bounded_text
from doctor.engine.record import OptionProblem
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.environment.launch_trials import absent_command, run_trial, trial_message, wrapper_refused
from doctor.environment.script_walk import ScriptCall, Walk, walk
from doctor.job.launch_line import LaunchLine
from doctor.job.launch_line.model import NOT_BASH
from doctor.job.shell.plain_sh import shell_of


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


class Tried(NamedTuple):
    """What this host says of a job script that runs next on it."""

    path: str
    environ: Mapping[str, str]
    script: ScriptCall | None = None
    """None: it does not run next here, and nothing of it is tried."""
    walked: Walk | None = None

    @classmethod
    def of_next(cls, path: str, text: str, lines: frozenset[int], environ: Mapping[str, str]) -> Tried:
        """``lines``: those that start ranks."""
        script = ScriptCall(("bash", path), text, lines, environ, knows_arguments=False)
        return cls(path, environ, script, walk(script))

    @property
    def next_path(self) -> str:
        return self.path if self.script else ""

    @property
    def is_reached(self) -> bool:
        return bool(self.walked and self.walked.reached)

    def refused(self, line: LaunchLine) -> tuple[tuple[OptionProblem, ...], list[str]]:
        """What keeps the script from a launch line, and what is not known of that."""
        if not self.script:
            return (), []
        if refused := shell_refused(self.path, line.line, self.environ):
            return refused, []
        end = before_line(line, self.script, self.walked)
        if end and end.kind == "waits":
            note = "{0}: whether the script comes to its launch line is not known: {1}"
            return (), [filled(note, printable(self.path, 200), end.expected)]
        return ((end,) if end else ()), []


def before_line(line: LaunchLine, script: ScriptCall, walked: Walk | None) -> OptionProblem | None:
    """What ends a script on this host before its launch line runs; of the kind ``waits`` where that is not sure."""
    if line.problems or walked is None:
        return None
    ask = shlex.join(("doctor", "rehearse", "--", *script.argv))
    if not walked.reached:
        return OptionProblem("bash", "", _ended(walked), ask, "trial" if walked.is_sure else "waits")
    path = line.environ.get("PATH", script.environ.get("PATH", ""))
    if not line.is_first or "PATH=" in line.unresolved:
        return wrapper_refused(line, script.environ, is_of_script=True)
    if not (absent := absent_command(line, {**script.environ, "PATH": path}, is_next=True)) or "/" in absent:
        return wrapper_refused(line, {**script.environ, "PATH": f"{path}:{script.environ.get('PATH', '')}"})
    reason = filled("line {0}: {1}", line.line, filled("{0}: not found", absent))
    return OptionProblem("bash", "", reason, ask, "trial")


def _ended(walked: Walk) -> str:
    if not walked.command:
        return "the script ends, and runs no command"
    behind = filled("the script ends behind `{0}`, with exit code {1}", walked.command, walked.code)
    ends = filled("line {0}: {1}", walked.line, walked.message or behind)
    return ends if walked.is_sure else filled("{0}; what the script starts before was left out", ends)


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

"""Reads a job script: directives, exports, launch lines. Pure; nothing of the script is run, and no file is opened."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from doctor.engine.texts import filled
from doctor.job.job_script.directives import Directive, Resources, read_directives, resources, variables_of
from doctor.job.launch_line.model import LaunchLine, NotALaunchLine
from doctor.job.launch_line.read import read_launch_line, starts_ranks, with_script
from doctor.job.shell.script_evaluation import ShellCommand, evaluate
from doctor.job.shell.tokens import MAX_TEXT
from doctor.job.shell.word import UnreadText, unread

_MOST_LINES = 256
_SHELLS = ("sh", "bash", "ksh", "zsh", "dash")


class NotAJobScript(ValueError):
    """Text that is no shell script: what is wrong."""


class JobScript(msgspec.Struct, frozen=True, kw_only=True):
    """A job script that was read."""

    directives: tuple[Directive, ...] = ()
    resources: Resources = Resources()
    launch_lines: tuple[LaunchLine, ...] = ()
    """Commands with a launcher, or Python programs, in the order of the script."""
    unread: tuple[UnreadText, ...] = ()
    """What was not followed: sourced files, ``eval``, text that no shell accepts."""

    @property
    def job_line(self) -> LaunchLine | None:
        """The line that starts the job: the last with a launcher, one that surely runs before one that may run.

        Without a launcher the last Python program. None without one.
        """
        candidates = [line for line in self.launch_lines if line.launchers] or list(self.launch_lines)
        certain = [line for line in candidates if not line.conditional]
        return next(reversed(certain or candidates), None)


def read_job_script(text: str, environ: Mapping[str, str] | None = None) -> JobScript:
    r"""The script's content. ``environ``: what it inherits. Raises: NotAJobScript.

    >>> script = read_job_script("#!/bin/bash\n#SBATCH -N 4\nexport A=1\nsrun -N $SLURM_NNODES python3 train.py\n")
    >>> script.resources.nodes, script.job_line.world_size, script.job_line.environ
    (4, 4, {'A': '1'})
    """
    if len(text) > MAX_TEXT:
        raise NotAJobScript(filled("is longer than {0} MiB", MAX_TEXT >> 20))
    if "\0" in text:
        raise NotAJobScript("holds a zero byte; expected a shell script")
    lines = text.splitlines()
    if lines and lines[0].startswith("#!") and not any(shell in lines[0] for shell in _SHELLS):
        raise NotAJobScript("its first line names another interpreter; expected a shell script")
    directives = tuple(read_directives(lines))
    requested = resources(directives)
    inherited = {**variables_of(requested), **(environ or {})}
    shell = evaluate(text, inherited)
    listed: list[LaunchLine] = []
    skipped = list(shell.unread)
    for command in shell.commands:
        if not starts_ranks(command.argv):
            continue
        if len(listed) >= _MOST_LINES:
            skipped.append(unread("...", filled("more than {0} launch lines", _MOST_LINES), command.line))
            break
        line = _launch_line(command, inherited)
        if line is not None:
            listed.append(line)
    return JobScript(directives=directives, resources=requested, launch_lines=tuple(listed), unread=tuple(skipped))


def _launch_line(command: ShellCommand, inherited: Mapping[str, str]) -> LaunchLine | None:
    changed = command.unset | command.unresolved.keys()
    environ = {name: value for name, value in inherited.items() if name not in changed}
    try:
        line = read_launch_line(command.argv, {**environ, **command.environ}, unresolved=command.unresolved)
    except NotALaunchLine:
        return None
    if not line.launchers and not (line.interpreter and line.program not in ("", "-c")):
        return None
    return with_script(line, command)

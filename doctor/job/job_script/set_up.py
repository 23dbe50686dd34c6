"""What a script sets up, and its launch line does not get: a Python environment, modules. Pure.

Sources: conda, "conda init" (``conda activate`` is a function of the shell, which only its hook defines); module(1) of
Lmod and Environment Modules, "purge"; bash(1), "INVOCATION" (a script reads neither ``/etc/profile`` nor
``~/.bashrc``); ssh(1): a command on another host gets no variable of the caller.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from doctor.engine.record import OptionProblem
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.job.launch_line.model import LaunchLine
from doctor.job.shell.word import ShellText

FUNCTION, MODULES, PYTHON = "a function of its shell", "the modules of the script", "the Python of the script"
FOLDER, BLOCK = "the folder of its job", "a reason to stay"
"""What a command lacks, in place of an option."""
_HOOKS = {
    "conda": 'eval "$(conda shell.bash hook)"',
    "mamba": 'eval "$(mamba shell hook --shell bash)"',
    "micromamba": 'eval "$(micromamba shell hook --shell bash)"',
}
_SETS_UP = re.compile(
    r"(?<![\w.-])(?:source|\.|eval|module|ml|spack|exec|conda[ \t]*\(\)|function|BASH_ENV)(?![\w.-])|shell[. ]|PATH="
)
"""What may define a function, load a module, or name the folder of a command."""
_PLAIN_SHELL = re.compile(r"#! ?/(?:usr/)?bin/(?:env +)?bash[ \t]*")
_ACTIVATED = re.compile(r"(?:source|\.) \S{1,200}/bin/activate(?: [\w.-]{1,100})?")
_IS_SET_UP = re.compile(r"activate|conda|module|\bml\b|PATH=|(?:source|\.|eval|--login|-[a-z]*l[a-z]*) |\$\(|\bsh\b")
_ACTIVATE = " activate"
_LOAD = (["load"], ["add"])

Commands = Sequence[tuple[int, list[str]]]
"""Line and words of each."""


_IN_TERMINAL = re.compile(r"\b(?:docker|nerdctl) (?:run|exec)\b[^;|&]{0,400}? -(?:it|ti)\b")
_OF_BATCH = re.compile(r"(?m)^#(?:SBATCH|PBS|BSUB|\$) ")
_STARTS_AT_HOME = {"#PBS": (r"-[dw]\b", "cd $PBS_O_WORKDIR"), "#$": (r"-(?:cwd|wd)\b", "#$ -cwd")}
"""By the mark of a scheduler that starts a script in the home folder: what gives it another, and how it is written."""


def without_set_up(
    line: LaunchLine, place: int, shell: ShellText, text: str, folder: str = ""
) -> Iterator[OptionProblem]:
    """What of the set-up before a launch line does not reach it. ``place``: of its command in the script; ``folder``:
    in which it runs, ``.``: where the scheduler starts the script.
    """
    if _IN_TERMINAL.search(line.text) and "--pty" not in line.text and _OF_BATCH.search(text):
        expected = "-i alone, as there is no terminal"
        yield OptionProblem("docker", "-it", filled("in a batch job"), expected)
    if folder == "." and line.program.endswith(".py") and not line.program.startswith(("/", "$", "~")):
        yield from _at_home(line, text)
    command, before = shell.commands[place], [each for each in shell.commands[:place] if not each.conditional]
    commands = [(each.line, [word.text for word in each.argv[:32]]) for each in before if each.argv]
    lines = text.split("\n", command.line)[: command.line - 1]
    yield from _without_function(commands, lines)
    if not line.launchers or line.innermost is None:
        return
    outer, launcher = line.launchers[0].command, line.innermost.command
    if line.commands and "/" not in line.commands[0][0]:
        yield from _without_modules(outer, commands, lines)
    activated = [part.text for part in shell.unread if part.line < command.line and _ACTIVATED.fullmatch(part.text)]
    if activated and line.launchers[0].launcher == "ssh" and len(line.launchers) > 1 and not line.container:
        remote_text = " ".join(word.text for word in command.argv)
        if not (_IS_SET_UP.search(remote_text) or f"/{launcher}" in remote_text):
            reason = filled("before {0} on the other host, which has nothing of this shell", launcher)
            yield OptionProblem(outer, PYTHON, printable(activated[-1], 120), reason, "wanted")


def _at_home(line: LaunchLine, text: str) -> Iterator[OptionProblem]:
    for mark, (options, value) in _STARTS_AT_HOME.items():
        directives = "\n".join(each for each in text.split("\n") if each.startswith(f"{mark} "))
        if directives and not re.search(options, directives) and "O_WORKDIR" not in text:
            reason = filled("before {0}, as the scheduler starts a script in the home folder", line.program)
            yield OptionProblem("bash", FOLDER, value, printable(reason, 160), "wanted")


def _without_function(commands: Commands, lines: list[str]) -> Iterator[OptionProblem]:
    active = [(number, argv[0]) for number, argv in commands if argv[1:2] == ["activate"] and argv[0] in _HOOKS]
    for number, name in active[:1] if lines and _PLAIN_SHELL.fullmatch(lines[0]) else ():
        before = [*lines[1 : number - 1], lines[number - 1].partition(name + _ACTIVATE)[0]]
        if not _SETS_UP.search("\n".join(before)):
            reason = filled("before line {0}, as a script does not read ~/.bashrc", number)
            yield OptionProblem(name + _ACTIVATE, FUNCTION, _HOOKS[name], reason, "wanted")


def _without_modules(command: str, commands: Commands, lines: list[str]) -> Iterator[OptionProblem]:
    modules = [(number, argv[1:]) for number, argv in commands if argv[0] in ("module", "ml")]
    purged = max((number for number, argv in modules if argv[:1] == ["purge"]), default=0)
    names = [name for number, argv in modules if number < purged and argv[:1] in _LOAD for name in argv[1:]]
    if names and not _SETS_UP.search("\n".join(lines[purged:])):
        reason = filled("behind line {0}, which unloads them", purged)
        yield OptionProblem(command, MODULES, printable(" ".join(("module load", *names)), 120), reason, "wanted")

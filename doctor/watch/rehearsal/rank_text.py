"""Shell text that each rank runs, with a stub in the place of its program. Pure.

The text goes on as it stands, so that each rank gets what it alone can compute, such as ``RANK=$SLURM_PROCID``. Refused
is text that starts anything but the program and what sets its environment up.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.job.job_size import STARTS_TASKS
from doctor.job.launch_line import LaunchLine, NotALaunchLine, read_launch_line
from doctor.job.shell.script_evaluation import evaluate
from doctor.job.shell.setting_up import sets_up
from doctor.job.shell.word import ShellCommand, ShellText, beside_script, literal_words

MAX_TEXT = 100_000
"""Bytes: Linux takes 128 KiB for one word of a command."""
_STARTS = ("exec", "command", "time")
_CHANGES = re.compile(r"(?<![\w./-])(?:rm|trap)(?![\w./=-])")
"""Of the commands that `evaluate` passes over."""
_ELSEWHERE = re.compile(r"BASH_SOURCE|[<>]\(|\0")
_NAME = re.compile(r"[\w@./+-]{1,400}\Z", re.ASCII)
_BEFORE, _AFTER = r"""(?<![^\s;&|(){}="'`])""", r"""(?![^\s;&|(){}"'`])"""
_QUOTED = r""""(?:[^"\\]|\\.)*"|'[^']*'"""
_OUTPUT = re.compile(rf"""(?:&|\b[0-9])?>{{1,2}}\|?[ \t]*((?:{_QUOTED}|[^\s;&|()<>'"])+)""")
_COMPARES = re.compile(r"\[\[|\]\]|\(\(|\)\)")
_ENDS = {"[[": "]]", "((": "))"}
MAX_COMPARISON = 400
"""Characters: in more, what looks like output is output."""
_STREAMS = ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty")
_SCRIPTS = (".sh", ".bash")
_OWN_TEXT = "$BASH_EXECUTION_STRING"
"""Bash's name for the text after ``-c``."""
_RESTART = re.compile(
    r"""((?:^|[;&|({]|\b(?:then|else|do|exec)\b)[ \t]*|(?<![\w./-])bash[ \t]+)("?)\$(?:0|\{0\})\2(?=[\s;&|)]|\Z)""",
    re.MULTILINE,
)
"""At the beginning of a command, or behind ``bash``."""
_SOURCE = re.compile(r"\$\{BASH_SOURCE(?:\[0\])?\}|\$BASH_SOURCE\b(?!\[)")
_TEE = re.compile(r"\|(&?)[ \t]*tee\b[^;|&\n)]*")
_LOGS = re.compile(r"(--(?:log[-_]dir|output-filename)[= ])[ \t]*\S+")
_NO_LOGS = re.compile(r"(?<![\w/.-])(torchrun|torch\.distributed\.(?:run|launch))(?=\s)")


class TextRefused(ValueError):
    """Text in which the program cannot be replaced: why."""


class RankText(NamedTuple):
    """Text that can be run."""

    text: str
    arguments: tuple[str, ...]
    """After the text and the script's name."""
    program: str
    """As the text starts it."""
    path: str
    """Of the stub, which the text starts."""
    line: LaunchLine
    """The command that starts it."""
    place: int
    """The command's number in the text."""
    shell: ShellText
    """The commands of the text."""


def restarting_itself(text: str) -> str:
    """A script of bash that is run by ``bash -c``: its ``$0`` is started likewise, the text and not the file."""
    text = _SOURCE.sub("$0", text)
    return _RESTART.sub(lambda match: f'{match[1].removesuffix("bash ")}bash -c "{_OWN_TEXT}" $0', text)


def with_stub(
    text: str,
    arguments: Sequence[str],
    environ: Mapping[str, str],
    stub: str,
    module_stub: str,
    logs: str,
    read: Callable[[str], str] | None = None,
) -> RankText:
    """Text of a shell, and its arguments, with a stub. Raises: TextRefused.

    ``stub``: the file's name, which lies beside the program; ``module_stub``: its path in the place of a module.
    ``read``: the text of a script that this one starts; None: such text is refused.

    >>> text = with_stub('export RANK=$SLURM_PROCID; python -u run/train.py "$@"', ["--lr", "1"], {}, "s.py", "", "")
    >>> text.text, text.program
    ('export RANK=$SLURM_PROCID; python -u run/s.py "$@"', 'run/train.py')
    """
    if len(text.encode("utf-8", "replace")) > MAX_TEXT or _ELSEWHERE.search(text):
        raise TextRefused("its text cannot be run from another place")
    if removed := _CHANGES.search(text):
        raise TextRefused(filled("it starts {0}, too", removed[0]))
    text = _without_output(text, logs)
    line = _only_line(text, arguments, environ)
    if read and _NAME.match(line.program) and line.program.endswith(_SCRIPTS):
        inner = with_stub(read(line.program), line.arguments, environ, stub, module_stub, logs)
        if inner.shell.moves or inner.arguments != line.arguments:
            raise TextRefused(filled("{0} is a shell script, too", line.program))
        started = f"{'' if line.interpreter else 'bash '}-c {shlex.quote(inner.text)} {line.program}"
        path, program = inner.path, inner.program
    else:
        path, program = _stub_path(line, stub, module_stub), _file_of(line)
        started = path if runs_python(line) else f"python3 {path}"
    if _file_of(line) != line.program:
        started = stub
    new_text, rest = _pattern_of_program(line).sub(lambda _: started, text), _replaced_words(arguments, line, started)
    shell, starters = _starters(new_text, rest, environ)
    if {(new.program, new.is_module) for _, new in starters} != {(path, False)} or len(new_text.encode()) > MAX_TEXT:
        raise TextRefused("its program cannot be replaced with certainty")
    return RankText(new_text, tuple(rest), program, path, line, starters[0][0], shell)


def _only_line(text: str, arguments: Sequence[str], environ: Mapping[str, str]) -> LaunchLine:
    """The one line of a text that starts a program. Raises: TextRefused."""
    lines = {(line.program, line.is_module): line for _, line in _starters(text, arguments, environ)[1]}
    if len(lines) != 1:
        names = ", ".join(sorted(line.program or line.unresolved.get("program", "") for line in lines.values()))
        raise TextRefused(filled("it starts {0} programs; expected one: {1}", len(lines), printable(names, 200)))
    (line,) = lines.values()
    return line


def _pattern_of_program(line: LaunchLine) -> re.Pattern[str]:
    """Where the program stands in the text of its line; of a folder that the line computes, the file's name alone."""
    if _file_of(line) != line.program:
        return re.compile(f"(?<=/){re.escape(os.path.basename(line.program))}{_AFTER}")
    flag = r"(?:-m|--module)[ \t]+" if line.is_module else ""
    return re.compile(f"{_BEFORE}{flag}{re.escape(line.program)}{_AFTER}")


def _file_of(line: LaunchLine) -> str:
    """The program's path; where the line computes its folder, and that is the script's, seen from there."""
    return line.program if ".." in line.program else beside_script(line.program)


def _stub_path(line: LaunchLine, stub: str, module_stub: str) -> str:
    """Raises: TextRefused."""
    if "program" in line.unresolved or not _NAME.match(_file_of(line)) or line.program.endswith(_SCRIPTS):
        why = printable(line.unresolved.get("program", line.program), 200)
        raise TextRefused(filled("the program of the launch line is not known: {0}", why))
    return module_stub if line.is_module else os.path.join(os.path.dirname(line.program), stub)


def runs_python(line: LaunchLine) -> bool:
    """Whether an interpreter or the launcher reads the program as Python."""
    call = line.innermost
    is_plain = call is not None and bool({"no-python", "no_python"} & call.options.keys())
    return bool(line.interpreter) or (call is not None and call.launcher in PYTHON_LAUNCHERS and not is_plain)


PYTHON_LAUNCHERS = ("torchrun", "msrun", "accelerate", "deepspeed", "colossalai")
"""They run their program in Python by themselves."""


def _replaced_words(argv: Sequence[str], line: LaunchLine, path: str) -> list[str]:
    """``"$@"`` of the text: the words behind it, where the program is among them."""
    replaced = [path if word == line.program else word for word in argv]
    for at in range(len(argv) - 1, 0, -1):
        if line.is_module and argv[at] == line.program and argv[at - 1] in ("-m", "--module"):
            del replaced[at - 1]
    return replaced


def _without_output(text: str, logs: str) -> str:
    """Nothing writes into the files of the job's output."""

    def redirected(match: re.Match[str]) -> str:
        return match[0] if match[1] in _STREAMS else " >/dev/null"

    text = _TEE.sub("|\\1 cat", text)
    parts: list[str] = []
    done = 0
    for start, end in _comparisons(text):
        parts += _OUTPUT.sub(redirected, text[done:start]), text[start:end]
        done = end
    text = "".join((*parts, _OUTPUT.sub(redirected, text[done:])))
    place = os.path.join(logs, "log")
    if _LOGS.search(text):
        return _LOGS.sub(lambda match: match[1] + place, text)
    return _NO_LOGS.sub(lambda match: f"{match[0]} --log_dir={place}", text)


def _comparisons(text: str) -> Iterator[tuple[int, int]]:
    """Where text compares, ``[[ a > b ]]`` and ``(( a > b ))``: start and end."""
    start, end = 0, ""
    for match in _COMPARES.finditer(text):
        if end and match.end() - start > MAX_COMPARISON:
            end = ""
        if not end:
            start, end = match.start(), _ENDS.get(match[0], "")
        elif match[0] == end:
            yield start, match.end()
            end = ""


def _starters(
    text: str, arguments: Sequence[str], environ: Mapping[str, str]
) -> tuple[ShellText, list[tuple[int, LaunchLine]]]:
    """The text's commands, and those that start a program, with their numbers. Raises: TextRefused."""
    shell = evaluate(text, environ, literal_words(arguments))
    not_followed = [part for part in shell.unread if part.text.partition(" ")[0] not in (".", "source")]
    if shell.refused or not_followed:
        part = (not_followed or shell.unread)[0]
        raise TextRefused(filled("{0}: {1}", part.text, part.reason))
    for inner in _substitutions(text):
        for command in evaluate(inner, environ, literal_words(arguments)).commands:
            if not sets_up(command.argv):
                raise TextRefused(filled("it starts {0}, too", printable(command.argv[0].text, 100)))
    return shell, [*_launches(shell, environ)]


def _launches(shell: ShellText, environ: Mapping[str, str]) -> Iterator[tuple[int, LaunchLine]]:
    for place, command in enumerate(shell.commands):
        if sets_up(command.argv):
            continue
        try:
            is_started = command.argv[0].text in _STARTS and len(command.argv) > 1
            line = read_launch_line(command.argv[is_started:], environ)
        except NotALaunchLine:
            raise TextRefused(filled("it starts {0}, too", printable(command.argv[0].text, 100))) from None
        if not _starts_itself(command, line):
            yield place, line


def _starts_itself(command: ShellCommand, line: LaunchLine) -> bool:
    """Alone, or in each task of a launcher: all that it starts is this very text."""
    is_own_text = not line.program and _OWN_TEXT in line.unresolved.get("program", "")
    texts = {word.text for word in command.argv}
    is_here = set(line.wrappers) <= {"bash -c"} and {call.launcher for call in line.launchers} <= {*STARTS_TASKS}
    return is_own_text and is_here and ":" not in texts


def _substitutions(text: str) -> Iterator[str]:
    """The texts of ``$(...)`` and of backquotes, outer ones with the inner ones in them."""
    yield from (match[1] for match in re.finditer(r"`([^`]*)`", text))
    opened: list[int] = []
    for match in re.finditer(r"\$\((?!\()|[()]", text):
        if match[0] != ")":
            opened.append(match.end() if match[0] == "$(" else -1)
        elif opened and (start := opened.pop()) >= 0:
            yield text[start : match.start()]

"""A launch line with another program in the place of its own: new_argv are replaced, and nothing is run. Pure.

What cannot be followed word by word is refused: a line is never run in which the user's own program may still stand.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

from msgspec.structs import replace

from doctor.engine.bounded_read import read_bounded, refusing_unreadable
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.environment.script_walk import ScriptCall, Walk, walk
from doctor.job.job_script import NotAJobScript, read_job_script
from doctor.job.job_size import STARTS_TASKS
from doctor.job.launch_line import LaunchLine, NotALaunchLine, read_launch_line
from doctor.job.launch_line.commands import launcher_rows, option_table
from doctor.job.launch_line.options import Options, split_options
from doctor.job.launch_line.read import SHELLS, starts_ranks
from doctor.job.launch_line.recipes import in_full
from doctor.job.shell.script_evaluation import evaluate
from doctor.job.shell.word import ShellCommand, ShellText, literal_words
from doctor.session.training_files import followed
from doctor.watch.rehearsal.rank_text import TextRefused, restarting_itself, runs_python, with_stub

_OF_BATCH = ("output", "error", "input", "open-mode", "array", "requeue", "no-requeue", "export", "wrap", "parsable",
             "wait")  # fmt: skip
"""Options that sbatch has and salloc has not (https://slurm.schedmd.com/salloc.html)."""
_DEEPEST = 4
"""Scripts that start one another."""
_SHEBANG = re.compile(rf"#![ \t]*(?:/usr/bin/env[ \t]+)?(?:/\S*/)?({'|'.join(SHELLS)})\b")
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
_IN_A_RANK = {"SLURM_STEP_ID": "0"}
"""With it text is read as that of a rank, which may start any program."""


class CannotRehearse(ValueError):
    """A line in which the program cannot be replaced: why."""


class OnlyAShellKnows(CannotRehearse):
    """A part of the launch line is computed where it runs. ``line_text``: the line, in a shell's text."""

    def __init__(self, why: str, line_text: str) -> None:
        super().__init__(why)
        self.line_text = line_text


class Rehearsed(NamedTuple):
    """A line that can be run."""

    argv: tuple[str, ...]
    environ: Mapping[str, str]
    line: LaunchLine
    program: str
    """The path that stands in the place of the program."""
    where: str = ""
    """The script and line that it stands in; empty for the words after ``--``."""
    folder: str = ""
    """In which it is run; empty: that of doctor."""
    start: str = ""
    """The folder in which the program starts, by ``cd`` or an option of the launcher, seen from ``folder``."""
    is_whole: bool = False
    """All of the script at ``where`` is run."""
    written: tuple[tuple[LaunchLine, ScriptCall, Walk | None], ...] = ()
    """The line as the script has it, innermost first, and its script; none where all of the script is run."""


def rehearsed_line(argv: Sequence[str], environ: Mapping[str, str], stub: str, logs: str) -> Rehearsed:
    """The line with a stub. ``stub``: the file's name; it lies beside the program. ``logs``: a folder for logs.

    Raises: CannotRehearse.
    """
    try:
        line = read_launch_line(argv, environ)
    except NotALaunchLine as error:
        raise CannotRehearse(str(error)) from None
    if os.path.basename(argv[0]) == "sbatch":
        raise _of_sbatch(split_options("sbatch", literal_words(argv[1:]), launcher_rows()["srun"]), environ)
    for place in range(len(argv)):
        if f"{argv[place]} -c" in line.wrappers:
            return _of_shell(argv, place, environ, line, stub, logs)
    if _is_script(line, argv):
        return _of_script(line, environ, stub, logs)
    return _replaced(argv, environ, line, stub, logs)


def _of_shell(
    argv: Sequence[str], place: int, environ: Mapping[str, str], line: LaunchLine, stub: str, logs: str
) -> Rehearsed:
    """``bash -lc TEXT``, also behind a launcher: the shell itself goes first, since one of a login sets variables."""
    rest = split_options("bash", literal_words(argv[place + 1 :]), option_table("shell")).rest
    if not rest or any(call.launcher == "ssh" for call in line.launchers):
        raise _not_among_words(line)
    text, *arguments = (word.text for word in rest)
    before = _own_logs(list(argv[: len(argv) - len(rest)]), line, logs)
    try:
        inner = _of_text(f"{argv[place]} -c", text, environ, arguments[1:], stub, logs)
    except CannotRehearse as error:
        if not (isinstance(error, OnlyAShellKnows) or line.launchers):
            raise
        inside = {**environ, **_IN_A_RANK} if line.launchers else environ
        reason = CannotRehearse(str(error)) if place else error  # behind a launcher its line alone is another one
        inner = _whole_text([argv[place], "-c"], f"{argv[place]} -c", text, inside, arguments[1:], stub, logs, reason)
        new_argv, start = (
            (*before, inner.argv[2], *arguments[:1], *inner.argv[4:]),
            os.path.join(line.folder, inner.start),
        )
        return inner._replace(argv=new_argv, environ=environ, line=line, start=start)
    removed = [word for name in sorted(environ.keys() - inner.environ.keys()) for word in ("-u", name)]
    names = sorted(name for name in inner.environ if inner.environ[name] != environ.get(name))
    after = ("env", *removed, *(f"{name}={inner.environ[name]}" for name in names), *inner.argv)
    start = os.path.join(line.folder, inner.start)
    new_argv, written = (*before, 'exec "$@"', argv[place], *after), () if line.launchers else inner.written
    return inner._replace(argv=new_argv, environ=environ, line=line, start=start, written=written)


def _is_script(line: LaunchLine, argv: Sequence[str]) -> bool:
    """``bash run.sh`` or ``./run.sh``: a shell script alone, which has the launch line in it."""
    if line.launchers or line.wrappers or not line.program:
        return False
    return os.path.basename(line.interpreter) in SHELLS or (not line.interpreter and line.program.endswith(".sh"))


def _of_script(line: LaunchLine, environ: Mapping[str, str], stub: str, logs: str, depth: int = 0) -> Rehearsed:
    text = _read(line.program)
    try:
        return _of_text(line.program, text, environ, line.arguments, stub, logs, depth)
    except OnlyAShellKnows as error:
        head = [line.interpreter or _shell_of(text), "-c"]
        return _whole_text(head, line.program, text, environ, line.arguments, stub, logs, error)


def _read(path: str) -> str:
    """The text of a script. Raises: CannotRehearse."""
    with refusing_unreadable(path, "a job script", CannotRehearse):
        return read_bounded(path, 1 << 20).decode("utf-8")


def _shell_of(text: str) -> str:
    """The shell that the first line of a script names."""
    first_line = _SHEBANG.match(text[:200])
    return first_line[1] if first_line else "bash"


def _whole_text(
    head: Sequence[str],
    path: str,
    text: str,
    environ: Mapping[str, str],
    arguments: Sequence[str],
    stub: str,
    logs: str,
    reason: CannotRehearse,
) -> Rehearsed:
    """All of a shell's text with the stub in it: ``HEAD TEXT PATH ARGUMENTS``. Raises: CannotRehearse."""
    if head[-2].endswith("bash") and not path.endswith(" -c"):
        text = restarting_itself(text)
    try:
        ranked = with_stub(text, arguments, environ, stub, os.path.abspath(stub), logs, _read)
    except TextRefused as error:
        why = filled("{0}; {1}", reason, error) if str(reason) else str(error)
        raise CannotRehearse(_with_line(why, reason)) from None
    start, unknown = ranked.shell.folder_at(ranked.place, path)
    if unknown:
        raise CannotRehearse(_with_line(str(reason), reason))
    line, program = ranked.line, ranked.program
    if "folder of the program" in line.unresolved:
        program = os.path.join(os.path.abspath(os.path.dirname(path)), program)
        line = replace(line, program=program)
    program = os.path.abspath(stub) if line.is_module else os.path.join(os.path.dirname(program), stub)
    argv = (*head, ranked.text, path, *ranked.arguments)
    return Rehearsed(argv, environ, line, program, printable(path, 200), "", "" if line.is_module else start, True)


def _with_line(why: str, reason: CannotRehearse) -> str:
    """Why, with what to type where only a shell knows a part of the line."""
    if not isinstance(reason, OnlyAShellKnows):
        return why
    return filled("{0}. Expected its launch line, with values: doctor rehearse -- {1}", why, reason.line_text)


def _not_among_words(line: LaunchLine) -> CannotRehearse:
    program = printable(line.program, 200)
    return CannotRehearse(filled("{0} is not among the words of the line; expected a line that names it", program))


def _of_text(
    path: str, text: str, environ: Mapping[str, str], arguments: Sequence[str], stub: str, logs: str, depth: int = 0
) -> Rehearsed:
    """The launch line of a shell text, or of the one script that it starts. ``path``: of the script."""
    name, script_arguments, read_file = printable(path, 200), literal_words(arguments), followed(path, environ)[1]
    try:
        script = read_job_script(text, environ, script_arguments, read_file)
    except (ValueError, NotAJobScript) as error:
        raise CannotRehearse(filled("{0}: {1}", name, error)) from None
    inner_scripts = script.scripts if len(script.scripts) == 1 and depth < _DEEPEST else ()
    job_line = script.job_line or next(iter(inner_scripts), None)
    if job_line is None:
        raise CannotRehearse(filled("{0}: {1}", name, script.refusal or "no launch line was found in it"))
    takes_hosts = any(call.launcher in STARTS_TASKS for call in job_line.launchers)
    if script.resources.scheduler == "slurm" and takes_hosts and "SLURM_JOB_ID" not in environ:
        raise _needs_allocation([path, *arguments], script.resources.options)
    head = ("bash", "-c", text, "bash") if path.endswith(" -c") else ("bash", path)
    lines = frozenset(line.line for line in script.launch_lines or (job_line,))
    call = ScriptCall((*head, *arguments), text, lines, environ)
    if walked := walk(call):
        job_line = next((line for line in script.launch_lines if line.line == walked.reached), job_line)
    shell = evaluate(text, environ, script_arguments, read_file=read_file)
    command, folder = _known_command(shell, job_line.line, path)
    inside = {name: value for name, value in {**environ, **command.environ}.items() if name not in command.unset}
    new_argv = [word.text for word in command.argv]
    del new_argv[: new_argv[:1] == ["exec"]]
    written = (job_line, call, walked)
    line = read_launch_line(new_argv, inside)
    if _is_script(line, new_argv):
        inner_path = os.path.join(os.path.abspath(folder), line.program) if folder else line.program
        inner = _of_script(replace(line, program=inner_path), inside, stub, logs, depth + 1)
        inner = inner._replace(written=(*inner.written, written))
        return inner._replace(folder=os.path.join(folder, inner.folder)) if folder else inner
    rehearsed = _replaced(new_argv, inside, line, stub, logs, folder)
    return rehearsed._replace(where=filled("{0}, line {1}", name, job_line.line), folder=folder, written=(written,))


def _known_command(shell: ShellText, number: int, path: str) -> tuple[ShellCommand, str]:
    """The one command of a line of the script ``path``, and its folder. Raises: OnlyAShellKnows."""
    name = printable(path, 200)
    of_line = [command for command in shell.commands if command.line == number]
    commands = [command for command in of_line if starts_ranks(command.argv)] or of_line
    line_text = " ".join(word.text if word.unresolved else shlex.quote(word.text) for word in commands[-1].argv)
    line_text = printable(line_text, 600)
    if len(commands) != 1:
        raise OnlyAShellKnows(filled("{0}, line {1}: more than one command; expected one", name, number), line_text)
    (command,) = commands
    unknown = next((word.unresolved for word in command.argv if word.unresolved), "")
    unknown = unknown or next(iter(command.unresolved.values()), "")
    folder, unknown_folder = shell.folder_at(shell.commands.index(command), path)
    if unknown := unknown or unknown_folder:
        raise OnlyAShellKnows(
            filled("{0}, line {1}: only a shell knows {2}", name, number, printable(unknown, 200)), line_text
        )
    return command, folder


def _of_sbatch(options: Options, environ: Mapping[str, str]) -> CannotRehearse:
    script = [word.text for word in options.rest]
    requested: Mapping[str, Sequence[str]] = {}
    with suppress(OSError, ValueError, IndexError, NotAJobScript):
        requested = read_job_script(read_bounded(script[0], 1 << 20).decode("utf-8"), environ).resources.options
    return _needs_allocation(script or ["-c", options.text("wrap")], {**requested, **options.as_texts()})


def _needs_allocation(script: Sequence[str], options: Mapping[str, Sequence[str]]) -> CannotRehearse:
    """Why, with the command that rehearses a job script of Slurm within its allocation."""
    requested = [f"--{name}={text}".rstrip("=") for name, texts in options.items() for text in texts[-1:]
                 if name not in _OF_BATCH]  # fmt: skip
    again = shlex.join(["salloc", *requested, "doctor", "rehearse", "--", "bash", *script])
    return CannotRehearse(filled("it needs its allocation: {0}", printable(again, 600)))


def _replaced(
    argv: Sequence[str], environ: Mapping[str, str], line: LaunchLine, stub: str, logs: str, folder: str = ""
) -> Rehearsed:
    if not line.program or "program" in line.unresolved or line.program == "-c":
        why = line.unresolved.get("program", "none is named")
        raise CannotRehearse(filled("the program of the launch line is not known: {0}", printable(why, 200)))
    if ":" in argv and line.innermost is not None and line.innermost.launcher == "openmpi":
        return _of_several(argv, environ, line, stub, logs, folder)
    argv, tail = in_full(argv, {**environ, **line.environ}), [line.program, *line.arguments]
    start = len(argv) - len(tail)
    if start < 0 or argv[start:] != tail:
        raise _not_among_words(line)
    head = list(argv[:start])
    if text := _shell_text(os.path.join(folder, line.folder, line.program), line):
        error = CannotRehearse(filled("{0} is a shell script that each rank runs", printable(line.program, 200)))
        before = [*_own_logs(head, line, logs), *([] if line.interpreter else [_shell_of(text)]), "-c"]
        inside = {**environ, **_IN_A_RANK} if line.launchers else environ
        inner = _whole_text(before, line.program, text, inside, line.arguments, stub, logs, error)
        return inner._replace(environ=environ, line=line, start=os.path.join(line.folder, inner.start))
    values = [word for before, word in pairwise(head) if before.startswith("-")]  # of options
    if line.program in head and line.program not in values:
        raise CannotRehearse(filled("{0} stands in the line twice", printable(line.program, 200)))
    head = _own_logs(head, line, logs)
    path = stub if line.is_module else os.path.join(os.path.dirname(line.program), stub)
    if line.is_module:
        path = os.path.join(os.getcwd(), folder, line.folder, stub)
        places = [position for position, word in enumerate(head) if word in ("-m", "--module")]
        if not places:
            raise CannotRehearse("no -m before the module; expected one")
        del head[places[-1]]
    new_argv = (*head, *([] if runs_python(line) else ["python3"]), path, *line.arguments)
    _require_replaced(new_argv, environ, stub)
    return Rehearsed(new_argv, environ, line, path, start=line.folder)


def _shell_text(path: str, line: LaunchLine) -> str:
    """Of a shell script, its text; empty for other programs. Raises: CannotRehearse where it cannot be read."""
    is_named = os.path.basename(line.interpreter) in SHELLS or path.endswith((".sh", ".bash"))
    if is_named or line.interpreter:
        return _read(path) if is_named else ""
    with suppress(OSError, ValueError):
        text = read_bounded(path, 1 << 20).decode("utf-8", "replace")
        return text if _SHEBANG.match(text[:200]) else ""
    return ""


def _of_several(
    argv: Sequence[str], environ: Mapping[str, str], line: LaunchLine, stub: str, logs: str, folder: str
) -> Rehearsed:
    """Several programs of one mpirun, with ``:`` between them; they lie in one folder, or the line is refused."""
    ends = [place for place, word in enumerate(argv) if word == ":"]
    parts = [list(argv[begin + 1 : end]) for begin, end in pairwise((-1, *ends, len(argv)))]
    _, options = line.first_launcher(argv)
    new_argv: list[str] = []
    replaced: list[Rehearsed] = []
    for part in parts:
        part_argv = part if part is parts[0] else [*parts[0][:options], *part]
        part_line = read_launch_line(part_argv, environ)
        if not os.path.lexists(os.path.join(folder, part_line.folder, part_line.program)) and not part_line.is_module:
            text = filled("{0}: there is no such file on this host", printable(part_line.program, 200))
            raise CannotRehearse(text)
        replaced.append(_replaced(part_argv, environ, part_line, stub, logs, folder))
        new_argv += replaced[-1].argv if part is parts[0] else (":", *replaced[-1].argv[options:])
    if len({(part.program, part.start) for part in replaced}) > 1:
        raise CannotRehearse("its programs lie in several folders")
    return replaced[0]._replace(argv=tuple(new_argv), line=line)


def _require_replaced(new_argv: Sequence[str], environ: Mapping[str, str], stub: str) -> None:
    """Raises: CannotRehearse where the reader of launch lines does not find the stub as the program of the new line."""
    try:
        program = read_launch_line(new_argv, environ).program
    except NotALaunchLine as error:
        raise CannotRehearse(str(error)) from None
    if os.path.basename(program) != stub:
        raise CannotRehearse("its program cannot be replaced with certainty")


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

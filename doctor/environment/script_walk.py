"""Whether bash comes to the launch line of a script: bash itself goes through the script, and starts nothing.

A trap before each command asks whether it only computes a value or changes the shell. Every other command is left out
and counts as one that worked; one that bash does not find is run, for it fails by itself.
"""

from __future__ import annotations

import fcntl
import os
import re
import selectors
import shlex
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import IO, NamedTuple, cast

from doctor.engine.sanitize import printable
from doctor.job.shell.setting_up import sets_up
from doctor.job.shell.tokens import Token, UnreadableShell, tokenize
from doctor.job.shell.variables import assigned_name
from doctor.job.shell.word import Word

SECONDS = 10.0
"""For one walk; of a script that takes longer nothing is known."""
_TO_END = 1.0
_FIRST_HANDLE = 240
"""Scripts open files by lower numbers themselves."""
_MOST_BYTES = 4 << 20
_LEFT_OUT = ":"
"""The answer for a command that is left out in any case: bash knows this word."""
_REPLACED = "-:"
"""The same, where the shell ends with it."""
_NAMES_OF_SHELL = "alias break continue dirs disown eval getopts let mapfile readarray times unalias"
_OF_SHELL = frozenset(_NAMES_OF_SHELL.split())
"""Commands that change the shell alone, beside `SETS_UP`."""
_LITERAL = re.compile(r"[\w./+,@%:=-]{1,1000}", re.ASCII)
_NAME = re.compile(r"[\w./+][\w./+-]{0,1000}", re.ASCII)
"""A command that bash does not expand to another one."""
_ACTIVATING = frozenset(("conda", "mamba", "ml", "module"))
"""Functions that set up what a program inherits, by any commands; those of a script are not meant."""
_INERT = {"doctor", "exec", "sleep", "tee"}
"""Left out, they change nothing that a script asks for."""
_COMPOUND = re.compile(r"(?:for|case|select|\[\[) |\(\(")
_OF_GUARD = re.compile(r"\b(?:DEBUG|RETURN|extdebug|functrace)\b|^set [-+][a-zA-Z]*T|>&(?![0-9-])")
_OWN_TEXT = re.compile(r"\bpython[0-9.]* -c ")
_OWN_END = re.compile(r'kill(?: -[A-Z0-9a-z]{1,9}){0,2} "?\$(?:\$|BASHPID|\{BASHPID\})"?')
_STREAMS = ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty")
_BLOCK_OUTPUT = re.compile(r"(?:\b(?:done|fi|esac)|[)}])[ \t]*(?:&|[0-9])?>{1,2}\|?[ \t]*(?![ \t&(]|/dev/(?:null|std))")
"""Output of a block into a file, which no trap sees."""
_OF_ARGUMENTS = re.compile(r"\$(?:[1-9@*#]|\{[#!]?[1-9@*#])|\b(?:shift|getopts)\b")
_SPOILS = re.compile(
    r"\bdoctor_(?:leaves_out|word)\b|\bbuiltin[ \t]{0,20}\(|\bfunction[ \t]{1,20}builtin\b|\bPS4=[^\n]{0,200}[(`]"
)
"""Names of the guard, and what bash runs without it."""
_OF_DOCTOR = re.compile(r"\bdoctor\b")
_MESSAGE = re.compile(r".{0,4000}?: line [0-9]{1,9}: (.{1,400})")
_GUARD = r"""
BASH_ENV='FILE'
if [ "$BASH_ENV" ]; then . "$BASH_ENV"; else unset BASH_ENV; fi
doctor_leaves_out() {
  builtin local doctor_word
  builtin read -rN1 -u 'LOCK' doctor_word
  builtin printf '%s\0' "$BASHPID" "$$" "$@" "${#FUNCNAME[@]}" "${BASH_LINENO[@]}" "${BASH_SOURCE[@]}" \
    "${FUNCNAME[@]}" >&'CHANNEL'
  IFS= builtin read -r -u 'CHANNEL' doctor_word
  case $doctor_word in ?*)
    if case $doctor_word in
      -*) ! builtin type -f -- "${doctor_word:1}" ;;
      *) builtin declare -F -- "$doctor_word" || ! builtin type -- "$doctor_word" ;;
    esac; then doctor_word=; fi >/dev/null 2>&1
    builtin printf '%s\0' "${doctor_word:+left}" >&'CHANNEL' ;;
  esac
  builtin printf . >&'LOCK'
  case $doctor_word in ?*) return 0 ;; esac
  return 1
}
readonly -f doctor_leaves_out
set -T
trap 'builtin shopt -s extdebug; builtin set -T; ! doctor_leaves_out "$LINENO" "$BASH_COMMAND"' DEBUG
"""
"""What bash reads before the script. The lock keeps the questions of the shells of a pipeline apart."""


class ScriptCall(NamedTuple):
    """A script that bash is to go through."""

    argv: tuple[str, ...]
    """Bash, with the script and its arguments."""
    text: str
    lines: frozenset[int]
    """Those that start ranks."""
    environ: Mapping[str, str]
    folder: str = ""
    """Where it starts; empty: here."""
    knows_arguments: bool = True
    """``argv`` has those of the script."""


class Walk(NamedTuple):
    """How far bash came."""

    reached: int
    """The line that starts ranks to which it came first; 0: to none."""
    is_sure: bool
    """Nothing was left out that may decide whether it comes to one."""
    line: int = 0
    """Of the script: where it ran a command last."""
    command: str = ""
    message: str = ""
    """What bash printed last."""
    code: int = 0
    """Its exit code; negative: its signal."""


def walk(script: ScriptCall) -> Walk | None:
    """How bash comes to the first of the lines that start ranks. None: it cannot be started, or none of our traps sees
    all that the script does.
    """
    if _BLOCK_OUTPUT.search(script.text) or _SPOILS.search(script.text):
        return None
    try:
        return _walk(script)
    except OSError:
        return None


def _walk(script: ScriptCall) -> Walk:
    channel, their_end = socket.socketpair()
    with channel, ExitStack() as handles, tempfile.TemporaryFile() as guard:
        with their_end:
            read, write = os.pipe2(os.O_CLOEXEC)
            handles.callback(os.close, write)
            lock = os.open(f"/proc/self/fd/{read}", os.O_RDWR | os.O_CLOEXEC)
            os.close(read)
            handles.callback(os.close, lock)
            numbers = [
                fcntl.fcntl(handle, fcntl.F_DUPFD_CLOEXEC, _FIRST_HANDLE)
                for handle in (their_end.fileno(), lock, guard.fileno())
            ]
        os.write(lock, b".")
        guard.write(_guard(numbers[0], numbers[1], script.environ.get("BASH_ENV", "")).encode())
        guard.flush()
        shell = subprocess.Popen(
            script.argv,
            env={**script.environ, "LC_ALL": "C.UTF-8", "BASH_ENV": f"/proc/self/fd/{numbers[2]}"},
            cwd=script.folder or None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=numbers,
        )
        with cast(IO[bytes], shell.stderr) as printed:
            for number in numbers:
                os.close(number)
            questions = _Questions(channel, script)
            try:
                is_over = questions.answer(printed)
            finally:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(shell.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        return questions.result(shell.wait(_TO_END), is_over=is_over)
    return questions.result(-signal.SIGKILL, is_over=False)  # a file system that does not answer holds it


def _guard(channel: int, lock: int, environ_file: str) -> str:
    lines = _GUARD
    for name, value in (("CHANNEL", channel), ("LOCK", lock), ("FILE", environ_file)):
        lines = lines.replace(f"'{name}'", shlex.quote(str(value)))
    return lines


class _Question(NamedTuple):
    pid: int
    is_main: bool
    """Of the shell itself, not of one that it has forked."""
    line: int
    """Of the script."""
    command: str
    lines: frozenset[int]
    """Those of the script that run the command: of it, and of the functions and files around it."""
    functions: tuple[str, ...]
    """Around it, of other files than the script."""


class _Questions:
    def __init__(self, channel: socket.socket, script: ScriptCall) -> None:
        self._channel, self._lines = channel, script.lines
        self._is_arguments_known = script.knows_arguments or not _OF_ARGUMENTS.search(script.text)
        self._awaits_doctor = _OF_DOCTOR.search(script.text) is not None
        """This program may run within the script, which has come to it."""
        self._fields: list[bytes] = []
        self._rest = b""
        self._reached = 0
        self._is_sure, self._has_ended = True, False
        self._last = _Question(0, True, 0, "", frozenset(), ())
        self._pending: tuple[_Question, str] | None = None
        """Bash says next whether it has left this command out; and the name of what it starts."""
        self._printed = b""

    def answer(self, printed: IO[bytes]) -> bool:
        """Answers until the shell has ended or come to its goal; False where its time is over."""
        deadline = time.monotonic() + SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel, selectors.EVENT_READ)
            selector.register(printed, selectors.EVENT_READ)
            size = 0
            while selector.get_map() and not (self._reached or self._has_ended):
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready or size > _MOST_BYTES:
                    return False
                for key, _ in ready:
                    data = b""
                    with suppress(ConnectionError):
                        data = os.read(key.fd, 1 << 16)
                    size += len(data)
                    if not data:
                        selector.unregister(key.fileobj)
                    elif key.fileobj is self._channel:
                        *fields, self._rest = (self._rest + data).split(b"\0")
                        self._fields += fields
                        try:
                            self._take()
                        except (ConnectionError, ValueError):
                            return False
                    else:
                        self._printed = (self._printed + data)[-4096:]
        return True

    def _take(self) -> None:
        while self._fields:
            if self._pending:
                self._left_out(*self._pending, is_left=self._fields.pop(0) == b"left")
                self._pending = None
            elif (question := self._next()) is None:
                return
            else:
                self._last, name = question, self._name_of(question)
                self._pending = (question, name) if name else None
                self._channel.sendall(f"{name}\n".encode())

    def _next(self) -> _Question | None:
        """The next one that has come as a whole."""
        if len(self._fields) < 5:
            return None
        pid, main, line, command, count = (field.decode("utf-8", "replace") for field in self._fields[:5])
        frames = self._fields[5 : 5 + 3 * int(count)]
        if len(frames) < 3 * int(count):
            return None
        del self._fields[: 5 + len(frames)]
        numbers, files, functions = (frames[at * int(count) + 1 : (at + 1) * int(count)] for at in range(3))
        lines = [int(line), *map(int, numbers)]  # of the command, and of each call around it
        of_script = {line for line, file in zip(lines, files, strict=False) if file == files[-1]} or {lines[0]}
        others = zip(functions, files, strict=False)
        names = tuple(name.decode("utf-8", "replace") for name, file in others if file != files[-1])
        return _Question(int(pid), pid == main, lines[max(0, len(numbers) - 1)], command, frozenset(of_script), names)

    def _name_of(self, question: _Question) -> str:
        """What is left out, by its first word; empty: the command is run."""
        command = question.command
        if _COMPOUND.match(command) or _OWN_END.fullmatch(command):
            return ""
        try:
            tokens = tokenize(command)
        except UnreadableShell:
            return _LEFT_OUT
        parts = [token for token in tokens if token.here is None and not token.redirection]
        set_before = []
        while parts and (variable := assigned_name(parts[0])):
            set_before.append(variable)
            parts.pop(0)
        if any(token.operator for token in tokens) or _OF_GUARD.search(command) or (parts and "PATH" in set_before):
            return _LEFT_OUT
        files = [(token.redirection, _word(token)) for token in tokens if token.redirection]
        if files and _is_absent(*files[0], question.pid):
            return ""  # it fails by itself
        writes = any(">" in operator and word.text not in _STREAMS for operator, word in files)
        argv = [_word(token) for token in parts]
        if argv and (argv[0].text == "read" or "-t" in [word.text for word in argv]):
            self._is_sure = False  # a user answers, at a terminal
        return self._name_of_call(argv, question, writes=writes)

    def _name_of_call(self, argv: Sequence[Word], question: _Question, *, writes: bool) -> str:
        """A hyphen before it: functions of this name do not count."""
        prefix = argv[0].text if len(argv) > 1 and argv[0].text in ("exec", "command") else ""
        if prefix == "command" and argv[1].text in ("-v", "-V"):
            return _LEFT_OUT if writes else ""
        argv = argv[bool(prefix) :]
        is_activated = not prefix and not _ACTIVATING.isdisjoint(question.functions)
        if prefix != "exec" and not writes and (_is_run(argv) or is_activated):
            return ""
        name = argv[0].text if argv and not argv[0].unresolved else ""
        if writes and name != "exec":
            return _REPLACED if prefix == "exec" else _LEFT_OUT
        if not _NAME.fullmatch(name) or name in _ACTIVATING:
            return _LEFT_OUT
        return f"-{name}" if prefix else name

    def _left_out(self, question: _Question, name: str, *, is_left: bool) -> None:
        """Bash has left a command out, or has run it, as it is a function or nothing that bash finds."""
        command = question.command
        if not is_left:
            return
        self._awaits_doctor &= not _OF_DOCTOR.search(command)
        if question.lines & self._lines and not _OWN_TEXT.search(command):
            self._reached = min(question.lines & self._lines)
        elif command.startswith("exec ") and name not in ("exec", _LEFT_OUT):
            self._has_ended = question.is_main
            self._is_sure &= question.is_main
        elif os.path.basename(name).lstrip("-") not in _INERT:
            self._is_sure = False

    def result(self, code: int, *, is_over: bool) -> Walk:
        printed = self._printed.decode("utf-8", "replace").splitlines()
        messages = [match[1] for line in printed if (match := _MESSAGE.match(line))]
        last, is_sure = self._last, self._is_sure and is_over and self._is_arguments_known and not self._awaits_doctor
        message = printable(messages[-1], 200) if messages and code else ""
        return Walk(self._reached, is_sure, last.line, printable(last.command, 120), message, code)


def _word(token: Token) -> Word:
    text = "".join(part.text for part in token.parts)
    return Word(text, "" if all(part.kind == "text" for part in token.parts) else text)


def _is_run(argv: Sequence[Word]) -> bool:
    """Whether a command only computes a value, or changes the shell that runs it."""
    if not argv or argv[0].unresolved:
        return not argv
    return argv[0].text in _OF_SHELL or (argv[0].text not in ("hash", "mkdir", "sleep") and sets_up(argv))


def _is_absent(operator: str, word: Word, pid: int) -> bool:
    """Whether a file to read, or the folder of a file to write, surely is not there."""
    path, is_there = (word.text, os.path.exists) if operator == "<" else (os.path.dirname(word.text), os.path.isdir)
    with suppress(OSError):
        is_literal = not word.unresolved and _LITERAL.fullmatch(word.text)
        return bool(is_literal) and not is_there(os.path.join(os.readlink(f"/proc/{pid}/cwd"), path))
    return False

"""What a script's statements need so that its launch lines run, found in one pass over the script. Pure."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterator

from doctor.job.launch_line.model import ScriptNeed
from doctor.job.launch_line.read import starts_ranks
from doctor.job.shell.word import ASKS_FOR_FILES, ENDS, FOLDERS, ShellText, Step

_HARMLESS = """
date env free head hostname id lscpu nproc npu-smi nvidia-smi printenv pwd shopt type uname which whoami
"""
_CHANGE_NOTHING = frozenset(_HARMLESS.split())
_MAKES_NO_FILES = _CHANGE_NOTHING | {"alias", "conda", "mamba", "mkdir", "ml", "module"}
"""Commands before a launch line that neither change the folder nor make a file which it needs."""
_MAKES_NO_FOLDERS = _MAKES_NO_FILES - {"mkdir"}
_SETS_NOTHING = _CHANGE_NOTHING | {"mkdir"}
_ASKS = re.compile(r"-[defrsx] [^-\s][^\s]*(?: \])?")
"""Arguments of ``[`` and ``test`` that ask for one file."""
_DEFINED = re.compile(r"(?<![\w-])([\w.+-]{1,100})\s{0,20}(?:\(\s{0,20}\)|\{|=)")
_WORD = re.compile(r"[\w-]+")
_WRITES = re.compile(r"(?:>|\btee\b)[^\n;|&]*")
_MOST_WRITTEN = 1 << 16
"""Letters behind ``>`` and ``tee``; a script with more may write any file."""


class ScriptText:
    """What stands before each command of a script: the folder, what the statements need, what may make files."""

    def __init__(self, shell: ShellText, text: str) -> None:
        self._shell = shell
        self._written = "\n".join(match[0] for match in _WRITES.finditer(text))
        self._heads = [command.argv[0].text.rpartition("/")[2] if command.argv else "" for command in shell.commands]
        self._places = [step.place for step in shell.steps]
        self._folders = shell.folders()
        self._ends = {
            names: self._end_of(names) for names in (_CHANGE_NOTHING, _MAKES_NO_FILES, _MAKES_NO_FOLDERS, _SETS_NOTHING)
        }
        self.end = next((step for step in shell.steps if step.argv[0].text in ENDS), None)
        """Where the shell surely ends."""
        self._defined = set(_DEFINED.findall(text))
        """Functions, aliases and variables."""
        self._lines = text.splitlines()
        self._uncalled: dict[str, bool] = {}
        self._needs = sorted(self._each_need(), key=lambda entry: entry[0].place)

    def folder_at(self, place: int) -> str:
        """The folder in which a command runs, ``.`` for that of the caller; empty: not known."""
        folder, unknown = self._folders[bisect_right(self._places, place)]
        return "" if unknown else folder or "."

    def needs_at(self, place: int) -> tuple[ScriptNeed, ...]:
        """What a shell needs to reach a command, as far as none before it may bring that, and its limits."""
        before = self._needs[: bisect_right(self._needs, place, key=lambda entry: entry[0].place)]
        chosen = ((ends if place <= step.until else limit) for step, ends, limit in before)
        uncalled = self._function_not_called(self._shell.commands[place].line)
        return (*uncalled, *(need for need in chosen if need is not None))

    def makes_files(self, place: int) -> bool:
        """Whether a command before this one may make a file, or change the folder."""
        return not self._are_all(_MAKES_NO_FILES, place)

    def is_first(self, place: int) -> bool:
        """Whether all commands before this one change nothing."""
        return self._are_all(_CHANGE_NOTHING, place)

    def is_written(self, path: str) -> bool:
        """Whether the script itself writes a file with the name of this one."""
        return len(self._written) > _MOST_WRITTEN or (os.path.basename(path) or "-") in self._written

    def _end_of(self, names: frozenset[str]) -> tuple[int, int]:
        """How many commands, and lines with all followed, have these names alone."""
        others = (place for place, head in enumerate(self._heads) if head and head not in names)
        lines = (part.line for part in self._shell.unread if part.text not in names)
        return next(others, len(self._heads)), min(lines, default=1 << 30)

    def _are_all(self, names: frozenset[str], place: int, line: int = 1 << 30) -> bool:
        """Whether the commands before a place, and what was not followed before a line, have these names alone."""
        last_place, last_line = self._ends[names]
        return place <= last_place and line <= last_line

    def _each_need(self) -> Iterator[tuple[Step, ScriptNeed, ScriptNeed | None]]:
        """Each step, its need where it ends the shell, and elsewhere: a limit that the ranks inherit."""
        for step, (folder, unknown) in zip(self._shell.steps, self._folders, strict=False):
            (name, *arguments), place = [word.text for word in step.argv], step.place
            is_open = unknown or any(word.unresolved or word.text[:1] == "~" for word in step.argv[1:])
            is_limit = name == "ulimit" and step.is_certain
            if is_open or not arguments or name in ENDS or not (is_limit or place <= step.until):
                continue
            if name in ASKS_FOR_FILES and not _ASKS.fullmatch(" ".join(arguments)):
                continue
            if name == "type":
                if self._may_be_there(arguments[0], place):
                    continue
                step = step._replace(place=place + 1)  # the command itself is asked for by others
            is_folder = ">" in name or name in (*FOLDERS, *ASKS_FOR_FILES)
            makes = _MAKES_NO_FOLDERS if is_folder else _SETS_NOTHING if name in ("$", "type") else _MAKES_NO_FILES
            path = arguments[name in ASKS_FOR_FILES]
            if self._are_all(makes, place, step.line) and (is_folder or not self.is_written(path)):
                need = ScriptNeed(name, tuple(arguments), step.line, folder, True)
                yield step, need, need._replace(ends=False) if is_limit else None

    def _may_be_there(self, name: str, place: int) -> bool:
        """Whether the text may bring a command: by a function, an alias or its PATH."""
        command = self._shell.commands[place]
        return name in self._defined or "PATH" in command.environ or "PATH" in command.unresolved

    def _function_not_called(self, line: int) -> list[ScriptNeed]:
        """The function around a line that nothing in the text calls; none where something else may start ranks."""
        functions = () if self._shell.unread else self._shell.not_called.items()
        name, lines = next(((name, lines) for name, lines in functions if lines[0] <= line <= lines[1]), ("", (0, 0)))
        if name and name not in self._uncalled:
            self._uncalled[name] = self._is_never_named(name, lines)
        return [ScriptNeed("()", (name,), lines[0], "", True)] if self._uncalled.get(name) else []

    def _is_never_named(self, name: str, lines: tuple[int, int]) -> bool:
        """Whether nothing outside the function has its name, and all that may start ranks is in it."""
        first, last = lines
        commands = [command for command in self._shell.commands if command.argv]
        outside = (*self._lines[: first - 1], *self._lines[last:])
        is_named = any(name == word.text for command in commands for word in command.argv)
        is_named = is_named or any(name in part and name in _WORD.findall(part) for part in outside)
        starting = [command for command in commands if starts_ranks(command.argv) or command.argv[0].unresolved]
        return not is_named and all(first <= command.line <= last for command in starting)

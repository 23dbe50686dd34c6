"""What stands before the launch lines of a script, found in one pass over it. Pure."""

from __future__ import annotations

import os
import re
from bisect import bisect_right

from doctor.job.shell.word import ENDS, ShellText, Word

_HARMLESS = """
date env free head hostname id lscpu nproc npu-smi nvidia-smi printenv pwd shopt type uname which whoami
"""
_CHANGE_NOTHING = frozenset(_HARMLESS.split())
_MAKES_NO_FILES = _CHANGE_NOTHING | {"alias", "conda", "mamba", "mkdir", "ml", "module"}
"""Commands before a launch line that neither change the folder nor make a file which it needs."""
_WRITES = re.compile(r"(?:>|\btee\b)[^\n;|&]*")
_WAIT, _LOOP_BESIDE = re.compile(r"(?m)\b(?:wait|sleep|fg|trap)\b"), re.compile(r"(?m)^[ \t]*done\b.*[^&>\n]&[ \t]*$")
_OF_AMD = re.compile(
    r"(?i)rocm|miopen|\brocr|rccl|\bhip_|\bhsa_|\bmi[23][0-9]{2}|\blumi\b|\b(?:standard|small|dev)-g\b"
)
"""What scripts for AMD's GPUs name; the last are partitions of LUMI."""
_MOST_WRITTEN = 1 << 16
"""Letters behind ``>`` and ``tee``; a script with more may write any file."""


class ScriptText:
    """What stands before each command of a script: the folder, limits, what may make files."""

    def __init__(self, shell: ShellText, text: str) -> None:
        self.shell, self.text = shell, text
        self._written = "\n".join(match[0] for match in _WRITES.finditer(text))
        self._heads = [command.argv[0].text.rpartition("/")[2] if command.argv else "" for command in shell.commands]
        self._places = [step.place for step in shell.steps]
        self._folders = shell.folders()
        self._new_folders = [
            (at, self._path_of(at, word))
            for at, head in enumerate(self._heads)
            if head == "mkdir"
            for word in shell.commands[at].argv[1:]
        ]
        """By the place of a ``mkdir``, each path that it makes; empty: not known."""
        self._ends = {names: self._end_of(names) for names in (_CHANGE_NOTHING, _MAKES_NO_FILES)}
        self._last = max((at for at, head in enumerate(self._heads) if head not in _CHANGE_NOTHING), default=0)
        self._waits = [text.count("\n", 0, match.start()) + 1 for match in _WAIT.finditer(text[: 1 << 16])]
        self._has_loop_beside = _LOOP_BESIDE.search(text) is not None
        self.is_for_amd = _OF_AMD.search(text) is not None
        """Its GPUs are AMD's, which apptainer's containers see without an option: the host's /dev is theirs."""
        self.end = next((step for step in shell.steps if step.argv[0].text in ENDS), None)
        """Where the shell surely ends."""

    def folder_at(self, place: int) -> str:
        """The folder in which a command runs, ``.`` for that of the caller; empty: not known."""
        folder, unknown = self._folders[bisect_right(self._places, place)]
        return "" if unknown else folder or "."

    def makes_folder(self, folder: str, place: int) -> bool:
        """Whether a ``mkdir`` before a command may make a folder."""
        prefix = os.path.normpath(folder) + "/"
        return any(at < place and path.startswith(prefix if path else "") for at, path in self._new_folders)

    def _path_of(self, place: int, word: Word) -> str:
        folder = self.folder_at(place)
        return "" if word.unresolved or not folder else os.path.normpath(os.path.join(folder, word.text)) + "/"

    def ulimits_at(self, place: int) -> tuple[str, ...]:
        """Arguments of each ``ulimit`` that surely runs before a command."""
        steps = (step for step in self.shell.steps if step.place <= place and step.is_certain)
        limits = (step.argv[1:] for step in steps if step.argv[0].text == "ulimit")
        return tuple(
            " ".join(word.text for word in limit) for limit in limits if not any(word.unresolved for word in limit)
        )

    def makes_files(self, place: int) -> bool:
        """Whether a command before this one may make a file, or change the folder."""
        return not self._are_all(_MAKES_NO_FILES, place)

    def is_first(self, place: int) -> bool:
        """Whether all commands before this one change nothing."""
        return self._are_all(_CHANGE_NOTHING, place)

    def is_left(self, place: int) -> bool:
        """Whether the script ends behind a command, and waits for nothing."""
        return place >= self._last and not self._waits

    def waits_before(self, line: int) -> int:
        """How many waits stand before a line."""
        return sum(number < line for number in self._waits)

    def operator_behind(self, place: int) -> str:
        """The first behind a command that neither ends in a pipe nor decides about the next; empty: not known."""
        if self._has_loop_beside:
            return ""
        operators = (command.operator for command in self.shell.commands[place : place + 16])
        return next((operator for operator in operators if operator not in ("|", "&&", "||")), "")

    def is_written(self, path: str) -> bool:
        """Whether the script itself writes a file with the name of this one."""
        return len(self._written) > _MOST_WRITTEN or (os.path.basename(path) or "-") in self._written

    def _end_of(self, names: frozenset[str]) -> int:
        """How many commands have these names alone; -1: not all of the text was followed."""
        if any(part.text not in names for part in self.shell.unread):
            return -1
        others = (place for place, head in enumerate(self._heads) if head and head not in names)
        return next(others, len(self._heads))

    def _are_all(self, names: frozenset[str], place: int) -> bool:
        """Whether the commands before a place have these names alone."""
        return place <= self._ends[names]

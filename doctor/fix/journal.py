"""The journal and the undo data: three files of JSON lines. Each line is on disk before its step runs.

``journal.jsonl`` records who did what, when, where and with what result, without secrets. ``undo.jsonl`` holds what an
undo needs exactly: commands, and the bytes of files as they were; ``after.jsonl`` holds the state that each step left,
by which an undo sees what somebody else changed since. Both are printed only as differences, without secrets. A crash
can cut the last line of a file, and then the step of that line was never requested.
"""

from __future__ import annotations

import getpass
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from doctor.engine.bounded_read import read_bounded
from doctor.engine.decoding import prepare_decoding
from doctor.engine.sanitize import printable
from doctor.engine.secrets import hide_secrets
from doctor.engine.texts import filled
from doctor.engine.utc_time import utc_text
from doctor.fix.executor.file_changes import sync_folder
from doctor.fix.file_edits import FileState

JOURNAL_FILE, UNDO_FILE, AFTER_FILE = "journal.jsonl", "undo.jsonl", "after.jsonl"
MAX_JOURNAL_BYTES = 1 << 30
MAX_OUTPUT_CHARS = 2000
"""Characters kept of a command's output."""


class UndoStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """The undo of one step."""

    number: int
    host: str
    root: bool
    description: str
    playbook: str = ""
    run: str = ""
    """The command; empty for a file."""
    irreversible: str = ""
    """Why there is no command."""
    values: dict[str, str] = {}
    """The variables of `run` and `before`."""
    before: str = ""
    """The command that prints the state which the step changes."""
    before_output: str = ""
    token: str = ""
    """By which the host keeps the state after the step, for a controller that is lost."""
    file: str = ""
    """The path; of a step that changes it itself, where it really lies."""
    old: FileState | None = None
    new: FileState | None = None
    """As the step leaves it; `FileState.data` is its content."""
    kept: dict[str, FileState] | None = None
    """The files that match `file`, where other steps change them."""


class StateAfter(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state that a step left. Of several lines with one number the last one holds."""

    number: int
    output: str | None = None
    """What the step's ``before`` printed then; None where that is not known."""
    kept: dict[str, FileState] | None = None


class JournalEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the journal."""

    kind: Literal["began", "step", "ended", "proof", "undoing", "undone", "finished"]
    when: str
    number: int = 0
    """Of the step; a step, its end and its undo have one number."""
    host: str = ""
    playbook: str = ""
    description: str = ""
    command: str = ""
    changes: bool = True
    """The step changes something, and has an undo or a reason for none."""
    ran: bool = True
    """False: the host declined it, and nothing has changed."""
    code: int | None = None
    output: str = ""
    who: str = ""


Line = TypeVar("Line", UndoStep, StateAfter, JournalEntry)


class Journal:
    """The journal of one plan; its methods may be called from many threads."""

    def __init__(self, folder: Path) -> None:
        self._lock = threading.Lock()
        self._folder = folder
        numbers = [entry.number for entry in self.entries()] + [
            undo.number for undo in _read_lines(folder / UNDO_FILE, UndoStep)
        ]
        self._last_number = max(numbers, default=0)

    @property
    def origin(self) -> str:
        """The plan and who works on it, for the log of a host."""
        return filled("plan {0} by {1}@{2}", self._folder.name, _user(), os.uname().nodename)

    def entries(self) -> list[JournalEntry]:
        return _read_lines(self._folder / JOURNAL_FILE, JournalEntry)

    def undo_steps(self) -> list[UndoStep]:
        """Of the steps that were begun, in their order; not of those that the host declined, or that are undone."""
        closed = {entry.number for entry in self.entries() if entry.kind == "undone" and entry.code == 0}
        closed |= {entry.number for entry in self.entries() if entry.kind == "ended" and not entry.ran}
        begun = {entry.number for entry in self.entries() if entry.kind == "step"}
        return [undo for undo in _read_lines(self._folder / UNDO_FILE, UndoStep) if undo.number in begun - closed]

    def states_after(self) -> dict[int, StateAfter]:
        """The last known state after each step, by its number."""
        return {state.number: state for state in _read_lines(self._folder / AFTER_FILE, StateAfter)}

    def record_state(self, state: StateAfter) -> None:
        """What is lost here is not known to a later undo, which then refuses rather than overwrites."""
        with suppress(OSError):
            self._write(AFTER_FILE, state)

    def record_start(self, operation: str) -> None:
        """Raises: OSError."""
        self._write(
            JOURNAL_FILE, JournalEntry("began", _now(), description=operation, who=f"{_user()}@{os.uname().nodename}")
        )

    def record_step(self, host: str, playbook: str, description: str, command: str, undo: UndoStep | None) -> int:
        """A step that is about to be made. Returns its number once all is on the disk. Raises: OSError."""
        with self._lock:
            self._last_number += 1
            number = self._last_number
        if undo:
            self._write(UNDO_FILE, msgspec.structs.replace(undo, number=number))
        entry = JournalEntry(
            "step",
            _now(),
            number,
            host,
            playbook,
            hide_secrets(description),
            hide_secrets(command),
            changes=undo is not None,
        )
        self._write(JOURNAL_FILE, entry)
        return number

    def record_end(self, number: int, host: str, code: int | None, output: str, ran: bool = True) -> None:
        self._record("ended", number, host, code, output, ran)

    def record_verification(self, host: str, output: str) -> None:
        self._record("proof", 0, host, None, output)

    def record_undo_start(self, undo: UndoStep) -> None:
        self._record("undoing", undo.number, undo.host, None, undo.description)

    def record_undo_end(self, undo: UndoStep, code: int, output: str) -> bool:
        """Whether it could be recorded; if not, a repeated undo finds this step again."""
        return self._record("undone", undo.number, undo.host, code, output)

    def record_finish(self, code: int) -> None:
        self._record("finished", 0, "", code, "")

    def _record(
        self,
        kind: Literal["ended", "proof", "undoing", "undone", "finished"],
        number: int,
        host: str,
        code: int | None,
        output: str,
        ran: bool = True,
    ) -> bool:
        text = printable(hide_secrets(output.strip()), MAX_OUTPUT_CHARS)
        # What is lost here leaves a step that was begun, and that is what an undo goes by.
        with suppress(OSError):
            self._write(JOURNAL_FILE, JournalEntry(kind, _now(), number, host, ran=ran, code=code, output=text))
            return True
        return False

    def _write(self, name: str, line: UndoStep | StateAfter | JournalEntry) -> None:
        data = msgspec.json.encode(line) + b"\n"
        with self._lock:
            path = self._folder / name
            fresh = not path.exists()
            handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                size = os.fstat(handle).st_size
                if size and os.pread(handle, 1, size - 1) != b"\n":
                    data = b"\n" + data  # a crash cut the last line
                while data:
                    data = data[os.write(handle, data) :]
                os.fsync(handle)
            finally:
                os.close(handle)
            if fresh:
                sync_folder(self._folder)  # type: ignore[no-untyped-call]


def _read_lines(path: Path, kind: type[Line]) -> list[Line]:
    """Raises: OSError for what is no regular file, or too long."""
    try:
        data = read_bounded(path, MAX_JOURNAL_BYTES)
    except FileNotFoundError:
        return []
    entries: list[Line] = []
    for line in data.splitlines():
        try:
            entries.append(msgspec.json.decode(line, type=kind))
        except (msgspec.DecodeError, UnicodeError):
            continue  # cut by a crash: what it was to allow was never done
    return entries


def _now() -> str:
    return utc_text(timespec="milliseconds")


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())


prepare_decoding(UndoStep, StateAfter, JournalEntry)

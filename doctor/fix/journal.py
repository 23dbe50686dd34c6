"""What was done, and how to take it back: two files of JSON lines, each line on the disk before the step is made.

``journal.jsonl`` tells who did what, when, where and with what result, without secrets. ``undo.jsonl`` holds what an
undo needs exactly: commands, and the bytes of files as they were; it is never printed. A crash can cut the last line
of either, and then the step of that line was never asked for.
"""

from __future__ import annotations

import getpass
import os
import threading
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from doctor.engine.record import redact
from doctor.engine.sanitize import printable
from doctor.fix.file_edits import State

JOURNAL, UNDO = "journal.jsonl", "undo.jsonl"
EXCERPT = 2000
"""Characters of what a command said that are kept."""


class Undo(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one step is taken back."""

    number: int
    host: str
    root: bool
    say: str
    run: str = ""
    before: str = ""
    """What tells whether the host is as it `was`."""
    was: str = ""
    file: str = ""
    """Where the file really lies."""
    old: State | None = None
    new: str = ""
    """The sha of what the step writes; empty for no file."""


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the journal."""

    kind: Literal["began", "step", "ended", "proof", "undoing", "undone", "finished"]
    when: str
    number: int = 0
    """Of the step; a step, its end and its undo have one number."""
    host: str = ""
    playbook: str = ""
    say: str = ""
    command: str = ""
    changes: bool = True
    """The step has an undo, or changes nothing when it does not."""
    ran: bool = True
    """False: the host declined it, and nothing has changed."""
    code: int | None = None
    said: str = ""
    who: str = ""


Line = TypeVar("Line", Undo, Entry)


class Journal:
    """The journal of one plan; its methods may be called from many threads."""

    def __init__(self, place: Path) -> None:
        self._lock = threading.Lock()
        self._place = place
        known = [one.number for one in self.entries()] + [one.number for one in _lines(place / UNDO, Undo)]
        self._number = max(known, default=0)

    def entries(self) -> list[Entry]:
        return _lines(self._place / JOURNAL, Entry)

    def undos(self) -> list[Undo]:
        """Of the steps that were begun, in their order; not of those that the host declined, or that are undone."""
        over = {one.number for one in self.entries() if one.kind == "undone" and one.code == 0}
        over |= {one.number for one in self.entries() if one.kind == "ended" and not one.ran}
        begun = {one.number for one in self.entries() if one.kind == "step"}
        return [one for one in _lines(self._place / UNDO, Undo) if one.number in begun - over]

    def began(self, what: str) -> None:
        """Raises: OSError."""
        self._write(JOURNAL, Entry("began", _now(), say=what, who=f"{_user()}@{os.uname().nodename}"))

    def step(self, host: str, playbook: str, say: str, command: str, undo: Undo | None) -> int:
        """A step that is about to be made. Returns its number once all is on the disk. Raises: OSError."""
        with self._lock:
            self._number += 1
            number = self._number
        if undo:
            self._write(UNDO, msgspec.structs.replace(undo, number=number))
        entry = Entry("step", _now(), number, host, playbook, redact(say), redact(command), changes=undo is not None)
        self._write(JOURNAL, entry)
        return number

    def ended(self, number: int, host: str, code: int | None, said: str, ran: bool = True) -> None:
        self._note("ended", number, host, code, said, ran)

    def proof(self, host: str, said: str) -> None:
        self._note("proof", 0, host, None, said)

    def undoing(self, undo: Undo) -> None:
        self._note("undoing", undo.number, undo.host, None, undo.say)

    def undone(self, undo: Undo, code: int, said: str) -> None:
        self._note("undone", undo.number, undo.host, code, said)

    def finished(self, code: int) -> None:
        self._note("finished", 0, "", code, "")

    def _note(
        self,
        kind: Literal["ended", "proof", "undoing", "undone", "finished"],
        number: int,
        host: str,
        code: int | None,
        said: str,
        ran: bool = True,
    ) -> None:
        text = printable(redact(said.strip()), EXCERPT)
        # What is lost here leaves a step that was begun, and that is what an undo goes by.
        with suppress(OSError):
            self._write(JOURNAL, Entry(kind, _now(), number, host, ran=ran, code=code, said=text))

    def _write(self, name: str, line: Undo | Entry) -> None:
        data = msgspec.json.encode(line) + b"\n"
        with self._lock:
            path = self._place / name
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
                _settle(self._place)


def _settle(place: Path) -> None:
    handle = os.open(place, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _lines(path: Path, kind: type[Line]) -> list[Line]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    found: list[Line] = []
    for line in data.splitlines():
        try:
            found.append(msgspec.json.decode(line, type=kind))
        except (msgspec.DecodeError, UnicodeError):
            continue  # cut by a crash: what it was to allow was never done
    return found


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())

"""What a host sends for a bundle, kept in files of ours until it is packed.

A host is not trusted to keep to its request.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Mapping
from pathlib import Path

import msgspec

from doctor.engine.decoding import StreamTooLarge, inflate, prepare_decoding
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.transport.program import take_texts

MAX_PIECE = 1 << 20
"""Bytes of one message, inflated."""
MAX_FILES = 20_000
"""Files of one host."""
_MAX_NAME = 4000
_MAX_LEFT_OUT = 500
STATE = "environment_check"
"""The section that shows the devices."""
NO_ROOM = "the limit of bytes of all hosts"


class Header(msgspec.Struct, frozen=True):
    """The beginning of a file, as a host sends it."""

    section: str
    name: str
    origin: str
    size: int = 0
    modified: float = 0.0
    inode: int = 0


class _FileEnd(msgspec.Struct, frozen=True):
    complete: bool
    note: str


class _Omission(msgspec.Struct, frozen=True, array_like=True):
    reason: str
    count: int
    examples: list[str]


class _End(msgspec.Struct, frozen=True):
    left_out: list[tuple[str, _Omission]]


class Spooled(msgspec.Struct, frozen=True):
    """One file that came."""

    header: Header
    path: Path
    complete: bool
    note: str


class Room:
    """Bytes that all hosts together may still send. Used by many threads."""

    def __init__(self, count: int) -> None:
        self._room_left, self._lock = count, threading.Lock()

    def take(self, count: int) -> bool:
        """Whether there is room for so many more."""
        with self._lock:
            if count > self._room_left:
                return False
            self._room_left -= count
            return True


class HostSpool:
    """Takes in the messages of one host, each a line.

    Args:
        folder: an empty one of ours; files in it are numbered.
        sections: names that a header may have.
        limit: bytes of content from this host.
        room: those from all hosts.
    """

    def __init__(self, folder: Path, sections: frozenset[str], limit: int, room: Room) -> None:
        self.files: list[Spooled] = []
        self.left_out: list[tuple[str, str, int, list[str]]] = []
        """Of section, reason, how many, and examples."""
        self.error = ""
        self.ended = False
        self._folder, self._sections, self._room_left, self._room = folder, sections, limit, room
        self._header: Header | None = None

    @property
    def is_done(self) -> bool:
        return self.ended or bool(self.error)

    def take(self, text: bytes) -> None:
        try:
            self._message(inflate(base64.b64decode(text, validate=True), MAX_PIECE))
        except StreamTooLarge:
            self.error = "its answer is damaged"
        except (ValueError, RecursionError, msgspec.MsgspecError):
            self.error = "its answer is damaged"
        except OSError as error:
            self.error = filled("what it sent cannot be saved here: {0}", error.strerror)

    def close(self) -> None:
        """A file whose end did not come is kept as far as it came."""
        if self._header is not None:
            self._finish(_FileEnd(False, "its end did not arrive"))

    def add_state(self, texts: Mapping[str, bytes]) -> None:
        """Takes over the state of the devices of an earlier bundle, by the names of its files."""
        for name, text in texts.items():
            path = self._folder / str(len(self.files))
            with path.open("xb") as file:
                file.write(text)
            self.files.append(Spooled(Header(STATE, name, "an earlier bundle"), path, True, ""))

    def _message(self, data: bytes) -> None:
        kind, body = data[:1], data[1:]
        if kind != b"D":
            take_texts(body)
        if kind == b"F" and self._header is None:
            self._begin(msgspec.json.decode(body, type=Header))
        elif kind == b"D" and self._header is not None:
            self._keep(body)
        elif kind == b"E" and self._header is not None:
            self._finish(msgspec.json.decode(body, type=_FileEnd))
        elif kind == b"Z" and self._header is None:
            rows = msgspec.json.decode(body, type=_End).left_out[:_MAX_LEFT_OUT]
            self.left_out += [
                (section, printable(row.reason), max(row.count, 0), [printable(text, 400) for text in row.examples[:3]])
                for section, row in rows
                if section in self._sections
            ]
            self.ended = True
        else:
            raise ValueError(kind)

    def _begin(self, header: Header) -> None:
        if header.section not in self._sections or not header.name or len(header.name) > _MAX_NAME:
            raise ValueError(header.section)
        if len(self.files) >= MAX_FILES:
            raise ValueError(header.name)
        self._header = msgspec.structs.replace(header, origin=printable(header.origin, 1000))
        self._path = self._folder / str(len(self.files))
        self._path.touch(0o600)

    def _keep(self, data: bytes) -> None:
        if len(data) > self._room_left or not self._room.take(len(data)):
            self._finish(_FileEnd(False, NO_ROOM))
            self.error = filled("it was cut off: {0}", NO_ROOM)
            return
        self._room_left -= len(data)
        with self._path.open("ab") as file:
            file.write(data)

    def _finish(self, end: _FileEnd) -> None:
        assert self._header is not None
        self.files.append(Spooled(self._header, self._path, end.complete, printable(end.note)))
        self._header = None


prepare_decoding(Header, _FileEnd, _End)

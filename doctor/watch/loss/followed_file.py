"""A log that is read while it grows: rotation, truncation, and lines of any length, in bounded memory."""

from __future__ import annotations

import os
import re
import select
import stat
from collections.abc import Iterator

from doctor.engine.texts import filled

READ_BYTES = 1 << 18
MAX_PENDING = 1 << 16
"""Bytes of a line without an end that are kept; what follows of it is left out."""
_ENDS = re.compile(rb"[\r\n]")


class FollowedFile:
    r"""One log, ``-`` for stdin. `lines` gives what has come since. Progress bars end lines by ``\\r``."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.notes: list[str] = []
        self.bytes_read = 0
        self.ended = False
        """Nothing can come any more: stdin or a pipe was closed."""
        self._fd = 0 if path == "-" else -1
        self._identity = (0, 0)
        self._position = 0
        self._pending = b""
        self._overlong = False
        self._is_stream = path == "-"

    def open(self) -> str:
        """Opens it, if it is there and is not open. Returns why it could not be; empty where it could."""
        if self._fd >= 0:
            return ""
        try:
            # A FIFO without a writer must not block.
            fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            return error.strerror or "it cannot be opened"
        status = os.fstat(fd)
        if stat.S_ISDIR(status.st_mode):
            os.close(fd)
            return "it is a folder"
        self._is_stream = not stat.S_ISREG(status.st_mode)
        self._fd, self._identity, self._position = fd, (status.st_dev, status.st_ino), 0
        return ""

    def lines(self, *, final: bool = False, most: int = 1 << 26) -> Iterator[bytes]:
        """The lines that are complete now, of at most ``most`` bytes; with ``final`` also the last one without an end.

        An error of reading ends the file.
        """
        remaining = most
        while self._fd >= 0 and remaining > 0:
            try:
                block = self._read_block()
            except OSError as error:
                self._note(filled("{0}: it is read no further", error.strerror))
                self.ended = True
                break
            if not block:
                break
            remaining -= len(block)
            yield from self._split(block)
        if remaining <= 0:
            return
        if final or self.ended or (self._fd >= 0 and not self._is_stream and self._has_moved()):
            yield from self._rest()

    def _read_block(self) -> bytes:
        if self._is_stream:
            poll = select.poll()
            poll.register(self._fd, select.POLLIN)
            if not poll.poll(0):
                return b""
            block = os.read(self._fd, READ_BYTES)
            self.ended = not block and self.path == "-"
        else:
            block = os.read(self._fd, READ_BYTES)
        self._position += len(block)
        self.bytes_read += len(block)
        return block

    def _split(self, block: bytes) -> Iterator[bytes]:
        parts = _ENDS.split(block)
        if len(parts) > 1:
            if not self._overlong:
                yield self._pending + parts[0]
            self._pending, self._overlong = b"", False
            yield from parts[1:-1]
        last = parts[-1]
        if not self._overlong:
            self._pending += last
            if len(self._pending) > MAX_PENDING:
                yield self._pending[:MAX_PENDING]
                self._pending, self._overlong = b"", True

    def _rest(self) -> Iterator[bytes]:
        if self._pending:
            yield self._pending
        self._pending, self._overlong = b"", False

    def _has_moved(self) -> bool:
        """Whether the path names another file now, or this one was cut; then it is read from its start."""
        try:
            status = os.stat(self.path)
        except OSError:
            return False  # renamed, and the new one is not there yet: what still comes into this one is read
        if (status.st_dev, status.st_ino) != self._identity:
            self._note("it was replaced by a new file, which is read from its start")
            os.close(self._fd)
            self._fd = -1
            return not self.open()
        if status.st_size < self._position:
            self._note("it became shorter; it is read from its start")
            os.lseek(self._fd, 0, os.SEEK_SET)
            self._position = 0
            return True
        return False

    def _note(self, text: str) -> None:
        if text not in self.notes and len(self.notes) < 10:
            self.notes.append(text)

    def close(self) -> None:
        if self._fd > 0:
            os.close(self._fd)
            self._fd = -1

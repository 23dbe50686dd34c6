"""Bytes that come and go in pieces, and the lines in them."""

import errno
import os
import time


class BoundedOutput:
    """The first `limit` bytes of a stream; the rest is dropped."""

    def __init__(self, limit):
        self.limit, self.data = limit, bytearray()
        self.cut = False  # something was dropped

    def add(self, piece):
        room = self.limit - len(self.data)
        self.data += piece[:room]
        self.cut = self.cut or len(piece) > room

    def text(self):
        return bytes(self.data).decode("utf-8", "replace")


def last_lines(data: bytes, limit: int) -> str:
    """The text of the last whole lines, in so many bytes: of a line that was cut, the end of a secret has no shape."""
    kept = data if len(data) <= limit else data[-limit:].partition(b"\n")[2]
    return kept.decode("utf-8", "replace")


def read_exactly(fd, count):
    """So many bytes, and none behind them; empty when fewer came. For a blocking file descriptor."""
    data = b""
    while len(data) < count:
        piece = os.read(fd, count - len(data))
        if not piece:
            return b""
        data += piece
    return data


def kernel_records(log, limit, seconds):
    """The records of /dev/kmsg, opened without blocking, that have not been read yet: so many bytes, for so long.

    Raises: OSError.
    """
    size, end = 0, time.monotonic() + seconds
    while size < limit and time.monotonic() < end:
        try:
            record = os.read(log, 65536)
        except OSError as error:
            if error.errno == errno.EPIPE:  # some were overwritten meanwhile: the next is there
                continue
            if error.errno == errno.EAGAIN:
                return
            raise
        if not record:
            return
        size += len(record)
        yield record


def write_all(fd, data):
    """Writes all of it. For a blocking file descriptor."""
    while data:
        data = data[os.write(fd, data) :]


class LineBuffer:
    """Cuts a stream into lines. Of an incomplete line no more than the last `limit` bytes are kept; 0: all."""

    def __init__(self, limit=0):
        self.limit, self.rest = limit, bytearray()

    def split(self, piece):
        """The lines that are complete now, without their newlines."""
        self.rest += piece
        lines = []
        if b"\n" in piece:
            *lines, rest = bytes(self.rest).split(b"\n")
            self.rest = bytearray(rest)
        if self.limit:
            del self.rest[: -self.limit]
        return lines

"""Bytes that come and go in pieces."""

import os


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


def read_exactly(fd, count):
    """So many bytes, and none behind them; empty when fewer came. For a blocking file descriptor."""
    data = b""
    while len(data) < count:
        piece = os.read(fd, count - len(data))
        if not piece:
            return b""
        data += piece
    return data


def write_all(fd, data):
    """Writes all of it. For a blocking file descriptor."""
    while data:
        data = data[os.write(fd, data) :]

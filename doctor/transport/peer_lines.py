"""Lines of JSON by which two processes of a job get to know each other over TCP, before any of them is believed."""

from __future__ import annotations

import socket
import time
from typing import Any

import msgspec

_MAX_LINE_BYTES = 1 << 14
_LONG_SECONDS = 86400.0


class ForeignPeer(Exception):
    """What is at the other end does not belong to this job, or has another key."""


def send_line(link: socket.socket, value: Any) -> None:
    """One line. Raises: OSError."""
    link.sendall(msgspec.json.encode(value) + b"\n")


def read_line(link: socket.socket, deadline: float) -> bytes:
    """One line, and not a byte more than that: what follows is for others. Raises: ForeignPeer, OSError."""
    line = b""
    while not line.endswith(b"\n"):
        link.settimeout(min(max(deadline - time.monotonic(), 0.001), _LONG_SECONDS))
        peeked = link.recv(_MAX_LINE_BYTES, socket.MSG_PEEK)
        piece = link.recv(peeked.index(b"\n") + 1 if b"\n" in peeked else len(peeked))
        line += piece
        if not piece or len(line) > _MAX_LINE_BYTES:
            raise ForeignPeer
    return line


def decode_line(line: bytes, kind: type[Any]) -> Any:
    """What a line says, as ``kind``. Raises: ForeignPeer."""
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise ForeignPeer from None


def read_value(link: socket.socket, kind: type[Any], deadline: float) -> Any:
    """Raises: ForeignPeer, OSError."""
    return decode_line(read_line(link, deadline), kind)

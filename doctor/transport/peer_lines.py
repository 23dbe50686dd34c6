"""Lines of JSON by which two processes of a job get to know each other over TCP, before any of them is believed."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Iterable
from typing import Any

import msgspec

_MAX_LINE_BYTES = 1 << 14
_LONG_SECONDS = 86400.0


class ForeignPeer(Exception):
    """What is at the other end does not belong to this job, or has another key."""


def listen_on(ports: Iterable[int], address: str = "", backlog: int = 4096) -> socket.socket:
    """At the first port that is free: on one address, or on all of both families. Raises: OSError."""
    last = OSError("no port to listen on")
    families = [socket.AF_INET6, socket.AF_INET] if not address or ":" in address else [socket.AF_INET]
    for port in ports:
        for family in families[: 1 if address else 2]:
            try:
                dual = family == socket.AF_INET6 and not address
                return socket.create_server((address, port), family=family, backlog=backlog, dualstack_ipv6=dual)
            except (OSError, ValueError) as error:
                last = error if isinstance(error, OSError) else last
                if getattr(error, "errno", 0) == errno.EADDRINUSE:
                    break  # a port that is taken in one family is not taken in the other: peers come by both
    raise last


def is_own_address(text: str) -> bool:
    """Whether this is an address, not a name, that this host has.

    >>> is_own_address("127.0.0.1"), is_own_address("192.0.2.7"), is_own_address("localhost")
    (True, False, False)
    """
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    try:
        socket.inet_pton(family, text.partition("%")[0])
        with socket.socket(family) as probe:
            probe.bind((text, 0))
    except OSError:
        return False
    return True


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

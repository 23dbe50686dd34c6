"""A connection between two hosts of a watched job: lines both ways, read by a thread of its own."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Callable

import msgspec

from doctor.transport import TransportError
from doctor.transport.conversation import LineSession
from doctor.transport.local import SocketChannel

CUT_SECONDS = 15.0
"""Seconds after which the kernel gives up a connection whose other end acknowledges nothing."""
PROBE_SECONDS = 5.0
"""Seconds between two signs of life that the kernel asks for."""
MOST_WAITING, MOST_WAITING_BYTES = 4096, 64 << 20
"""Lines, and their bytes, that wait to be looked at: one host cannot fill the other's memory."""


class FleetLink:
    """Lines of JSON with another host. ``heard_at``: when the last one came; ``ended``: no more will come."""

    def __init__(self, host: str, link: socket.socket, at_once: Callable[[bytes], bool] = lambda _: False) -> None:
        """``at_once``: sees each line in the reading thread, and returns whether it is done with."""
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            (socket.TCP_KEEPIDLE, PROBE_SECONDS),
            (socket.TCP_KEEPINTVL, PROBE_SECONDS),
            (socket.TCP_KEEPCNT, 2),
            (socket.TCP_USER_TIMEOUT, 1000 * CUT_SECONDS),
        ):
            link.setsockopt(socket.IPPROTO_TCP, option, int(value))
        self.host = host
        self.heard_at = time.monotonic()
        self.ended = self.cut = False
        """``cut``: its kernel acknowledged nothing any more, in contrast to a program that ended."""
        self._lines: deque[bytes] = deque()
        self._received = self._taken = 0
        """Bytes of lines that were queued, and taken out; each is written by one thread."""
        self._at_once = at_once
        self._session = LineSession(host, SocketChannel(link))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            for line in self._session:
                self.heard_at = time.monotonic()
                if line and not self._at_once(line):
                    self._lines.append(line)
                    self._received += len(line)
                if len(self._lines) > MOST_WAITING or self._received - self._taken > MOST_WAITING_BYTES:
                    break
        except TransportError:
            # Signs of life come every second: an error long after the last of them is a connection that was cut.
            self.cut = time.monotonic() - self.heard_at > PROBE_SECONDS
        self.ended = True
        with contextlib.suppress(TransportError):
            self._session.close(0.0)

    def receive(self) -> bytes | None:
        """The next line that came; None where none waits."""
        try:
            line = self._lines.popleft()
        except IndexError:
            return None
        self._taken += len(line)
        return line

    def send(self, value: msgspec.Struct) -> bool:
        """Whether the line is on its way."""
        try:
            self._session.send(msgspec.json.encode(value) + b"\n")
        except TransportError:
            return False
        return True

    def wake_and_close(self, grace: float = 1.0) -> None:
        """Sends what waits to be sent, and ends the connection."""
        with contextlib.suppress(TransportError):
            self._session.close(grace)
        self.ended = True

"""Relay: a process that cannot reach the leader reports its error through another process on the same host.

A socket without a file, by a name made from the job's token. The kernel tells who is at the other end.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time

import msgspec

from doctor.engine.decoding import prepare_decoding
from doctor.smoke.rendezvous.link import Hello, RelayedError
from doctor.smoke.rendezvous.reachability import RendezvousError
from doctor.transport.peer_handshake import ForeignPeer, read_line, send_line

_TIMEOUT = 1.0


class RelayedVerdict(msgspec.Struct, frozen=True):
    """What the run came to: the exit code of every process of the job."""

    verdict: int


class LeaderOrder(msgspec.Struct, frozen=True):
    """What the leader sends to a process: the verdict, or to start its agent again for another run."""

    verdict: int | None = None
    attempt: int = 0
    rank: int = -1
    """The number of the process's rank in that run; -1: its own."""


def _socket_name(key: bytes) -> str:
    return f"\0doctor-smoke-{key.hex()[:24]}"


class RelayInbox:
    """Of one host: whoever has it first. ``fileno`` is -1 where another process has it."""

    def __init__(self, key: bytes) -> None:
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._senders: list[socket.socket] = []
        try:
            self._server.bind(_socket_name(key))
            self._server.listen(64)
            self._server.setblocking(False)
        except OSError:
            self._server.close()

    def fileno(self) -> int:
        return self._server.fileno()

    def receive(self) -> RelayedError | None:
        """One letter, if it is one and from this user."""
        try:
            link, _ = self._server.accept()
        except OSError:
            return None
        _, user, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        try:
            if user != os.geteuid():
                raise ForeignPeer
            relayed_error = msgspec.json.decode(read_line(link, time.monotonic() + _TIMEOUT), type=RelayedError)
        except (ForeignPeer, OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
            link.close()
            return None
        self._senders.append(link)
        return relayed_error

    def abandon(self) -> None:
        """Leaves it to another process that has it, too."""
        self._server.close()

    def close(self, code: int | None) -> None:
        """Tells all who wrote what it came to, if that is known."""
        for link in self._senders:
            with contextlib.suppress(OSError):
                if code is not None:
                    send_line(link, RelayedVerdict(code))
                link.close()
        self._server.close()


class RelaySender:
    """The side of the process that cannot reach the leader."""

    def __init__(self, key: bytes, hello: Hello) -> None:
        self._key, self._hello = key, hello
        self._link: socket.socket | None = None
        self._sent_reason = ""
        self.verdict: int | None = None

    def send_error(self, error: RendezvousError) -> bool:
        """Sends the news, once there is somebody to take it. True when the verdict has come in the meantime."""
        if self._link and self._verdict_arrived(self._link):
            return True
        if error.reason == self._sent_reason:
            return False
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            link.settimeout(_TIMEOUT)
            link.connect(_socket_name(self._key))
            send_line(link, RelayedError(self._hello, error.reason, error.text))
        except OSError:
            link.close()
            return False
        self.close()
        self._link, self._sent_reason = link, error.reason
        return False

    def _verdict_arrived(self, link: socket.socket) -> bool:
        """Whether the verdict has come; a connection that can bring none is closed."""
        link.setblocking(False)
        try:
            peeked = link.recv(100, socket.MSG_PEEK)
            link.settimeout(_TIMEOUT)
            if peeked:
                line = read_line(link, time.monotonic() + _TIMEOUT)
                self.verdict = msgspec.json.decode(line, type=RelayedVerdict).verdict
                return True
        except BlockingIOError:
            return False
        except (OSError, ForeignPeer, msgspec.MsgspecError, UnicodeError):
            pass
        self.close()
        self._sent_reason = ""
        return False

    def close(self) -> None:
        if self._link:
            self._link.close()
        self._link = None


prepare_decoding(RelayedError, RelayedVerdict, LeaderOrder)

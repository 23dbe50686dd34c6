"""The bytes between us and a host's sshd, however they get there: a socket, a ProxyCommand, a jump host's channel."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

from doctor.engine.quantities import seconds_text
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.transport import TransportError, transport_error
from doctor.transport.ssh.config import SshHostConfig
from doctor.transport.ssh.lost_segments import lost_segments

_CHUNK = 1 << 12
"""Bytes of a recv: so much memory each connection holds while it waits."""
_PREAMBLE = 8192
"""Bytes that a server may say before its SSH banner."""
_STALL = 0.5
_CHANNEL_STALL = 2.0
"""Seconds between two tests of the deadline while the other side receives nothing."""
_QUICKACK = getattr(socket, "TCP_QUICKACK", None)


class Stream:
    """A socket-like for paramiko, with a memory: one large recv serves its many small ones.

    Waits are ended by `abort`, from any thread, not by timeouts: paramiko's own are a poll ten times a second.
    """

    def __init__(self, pipe: Any, end: Callable[[], None] | None = None, quick: bool = False) -> None:
        self._pipe, self._quick = pipe, quick
        self._on_close = [end] if end else []
        self._buffer = b""
        self._closed = False
        self._lock = threading.Lock()
        self.deadline = float("inf")
        """On the monotonic clock: a send without progress after it breaks the connection."""

    def recv(self, count: int) -> bytes:
        ahead = self._buffer
        if not ahead:
            ahead = self._pipe.recv(_CHUNK)
            if self._quick:
                with contextlib.suppress(OSError):
                    self._pipe.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
        self._buffer = ahead[count:]
        return ahead[:count]

    def take(self, count: int) -> bytes:
        """So many bytes that have been received already; none where fewer have been."""
        ahead = self._buffer
        if len(ahead) < count:
            return b""
        self._buffer = ahead[count:]
        return ahead[:count]

    def send(self, content: bytes) -> int:
        while True:
            try:
                return int(self._pipe.send(content))
            except (BlockingIOError, TimeoutError):
                if time.monotonic() > self.deadline:
                    raise ConnectionAbortedError("the other side does not read") from None

    def on_close(self, end: Callable[[], None]) -> None:
        """Has ``end`` called when the stream is closed."""
        self._on_close.append(end)

    def settimeout(self, timeout: float | None) -> None:
        """Not listened to: see the class."""

    def getpeername(self) -> Any:
        return self._pipe.getpeername()

    def watch(self, silence: float) -> None:
        """Has the kernel break the connection when the other side's gives no sign of life for so many seconds."""
        carrier = self._pipe
        if isinstance(carrier, socket.socket):
            with contextlib.suppress(OSError):  # a ProxyCommand's
                carrier.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for name, value in _keepalive_options(silence).items():
                    carrier.setsockopt(socket.IPPROTO_TCP, name, value)
        elif stream := getattr(getattr(carrier, "transport", None), "stream", None):
            stream.watch(silence)  # through a jump host: the connection to it

    def lost_segments(self) -> tuple[str, str]:
        """What does not get through: see `lost_segments`; through a jump host, to that. Empty for a ProxyCommand."""
        if isinstance(self._pipe, socket.socket):
            return lost_segments(self._pipe)
        stream = getattr(getattr(self._pipe, "transport", None), "stream", None)
        return stream.lost_segments() if stream else ("", "")

    def abort(self) -> None:
        """Ends both directions: whoever waits to read or write is woken."""
        with contextlib.suppress(OSError, EOFError):
            if isinstance(self._pipe, socket.socket):
                self._pipe.shutdown(socket.SHUT_RDWR)
            else:
                self._pipe.close()

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self.abort()
        with contextlib.suppress(OSError, EOFError):
            self._pipe.close()
        for end in self._on_close:
            end()

    def read_banner(self, settings: SshHostConfig, deadline: float) -> None:
        """Reads up to the server's SSH banner, gives it back to be read again, and lets reads wait from now on.

        Raises: Unreached, of kind silent, not-ssh or lost.
        """
        received, where = b"", describe_port(settings)
        try:
            while (line := _find_banner(received)) is None:
                self._pipe.settimeout(max(deadline - time.monotonic(), 0.001))
                chunk = self._pipe.recv(_CHUNK)
                received += chunk
                if not chunk:
                    raise hung_up_error(received, where)
                if len(received) > _PREAMBLE:
                    raise _not_ssh_error(received, where)
        except TimeoutError:
            raise _not_ssh_error(received, where) if received.strip() else _silent_error(settings) from None
        except OSError as error:
            raise transport_error(
                "lost", filled("{0} broke the connection before its SSH banner: {1}", where, error.strerror)
            ) from None
        if not line.startswith((b"SSH-2.0-", b"SSH-1.99-")):
            raise _not_ssh_error(line, where)
        self._buffer = received[received.index(line) :]
        self._wait_without_limit()

    def _wait_without_limit(self) -> None:
        """Reads wait without limit from now on; sends test the deadline periodically."""
        if isinstance(self._pipe, socket.socket):
            self._pipe.settimeout(None)
            self._pipe.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, int(_STALL * 1e6)))
        else:
            self._pipe.settimeout(_CHANNEL_STALL)  # for reads too: it has one for both


def _keepalive_options(silence: float) -> dict[int, int]:
    """Socket options: questions in quiet times, and an end to unanswered ones as to unanswered data."""
    share = max(1, round(silence / 3))
    values = {
        "TCP_KEEPIDLE": share,
        "TCP_KEEPINTVL": share,
        "TCP_KEEPCNT": 2,
        "TCP_USER_TIMEOUT": round(silence * 1000),
    }
    return {getattr(socket, name): value for name, value in values.items() if hasattr(socket, name)}


def _find_banner(received: bytes) -> bytes | None:
    lines = received.splitlines(keepends=True)
    return next((line for line in lines if line.startswith(b"SSH-") and line.endswith(b"\n")), None)


START_SSHD = "Start its SSH server, at its console: `systemctl enable --now sshd` (on Debian and Ubuntu `ssh`)."
"""The hint where nothing listens at the port."""


def describe_port(settings: SshHostConfig) -> str:
    """The host's port in words; its address too when the user's name for it is another."""
    same_name = settings.name in (settings.host, settings.host.lower())
    return filled("port {0}", settings.port) if same_name else filled("port {0} of {1}", settings.port, settings.name)


def _silent_error(settings: SshHostConfig) -> TransportError:
    waited = seconds_text(settings.connect_timeout)
    text = filled("{0} accepts connections, and sent no SSH banner within {1}", describe_port(settings), waited)
    return transport_error("silent", filled("{0}: sshd hangs, or it is not sshd", text))


def _not_ssh_error(received: bytes, where: str) -> TransportError:
    return transport_error(
        "not-ssh", filled("{0} does not speak SSH 2: it sent {1}", where, f"{strip_control_chars(received, 60)!r}")
    )


def hung_up_error(received: bytes, where: str) -> TransportError:
    """The error of a peer that closed the connection before its SSH banner; quotes what it sent instead."""
    quotation = filled(", after {0}", f"{strip_control_chars(received, 60)!r}") if received.strip() else ""
    hint = "see MaxStartups in its sshd_config, and its sshd's log"
    return transport_error(
        "lost", filled("{0} closed the connection at once, without an SSH banner{1}", where, quotation), hint
    )

"""The bytes between us and a host's sshd, however they get there: a socket, a ProxyCommand, a jump host's channel."""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from doctor.transport import Unreached
from doctor.transport.ssh_config import Settings
from doctor.transport.wording import plain, seconds, unreached

_CHUNK = 1 << 16
_PREAMBLE = 8192
"""Bytes that a server may say before its SSH banner."""
_STALL = 0.5
_CHANNEL_STALL = 2.0
"""Seconds between two looks at the deadline while the other side takes nothing in."""
_QUICKACK = getattr(socket, "TCP_QUICKACK", None)


class Stream:
    """A socket-like for paramiko, with a memory: one large recv serves its many small ones.

    Waits are ended by `abort`, from any thread, not by timeouts: paramiko's own are a poll ten times a second.
    """

    def __init__(self, pipe: Any, end: Callable[[], None] | None = None, quick: bool = False) -> None:
        self._pipe, self._quick = pipe, quick
        self._ends = [end] if end else []
        self._ahead = b""
        self._closed = False
        self._lock = threading.Lock()
        self.deadline = float("inf")
        """On the monotonic clock: a send that makes no way after it breaks the connection."""

    def recv(self, count: int) -> bytes:
        ahead = self._ahead
        if not ahead:
            ahead = self._pipe.recv(_CHUNK)
            if self._quick:
                with contextlib.suppress(OSError):
                    self._pipe.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
        self._ahead = ahead[count:]
        return ahead[:count]

    def send(self, content: bytes) -> int:
        while True:
            try:
                return int(self._pipe.send(content))
            except (BlockingIOError, TimeoutError):
                if time.monotonic() > self.deadline:
                    raise ConnectionAbortedError("the other side takes nothing in") from None

    def at_end(self, end: Callable[[], None]) -> None:
        """Has ``end`` called when the stream is closed."""
        self._ends.append(end)

    def settimeout(self, timeout: float | None) -> None:
        """Not listened to: see the class."""

    def getpeername(self) -> Any:
        return self._pipe.getpeername()

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
        for end in self._ends:
            end()

    def greeting(self, settings: Settings, deadline: float) -> None:
        """Reads up to the server's SSH banner, gives it back to be read again, and lets reads wait from now on.

        Raises: Unreached, of kind silent, not-ssh or lost.
        """
        heard, where = b"", port(settings)
        try:
            while (line := _banner(heard)) is None:
                self._pipe.settimeout(max(deadline - time.monotonic(), 0.001))
                chunk = self._pipe.recv(_CHUNK)
                heard += chunk
                if not chunk:
                    raise _hung_up(heard, where)
                if len(heard) > _PREAMBLE:
                    raise _no_ssh(heard, where)
        except TimeoutError:
            raise _no_ssh(heard, where) if heard.strip() else _silent(settings) from None
        except OSError as error:
            raise unreached("lost", f"{where} broke the connection before its SSH banner: {error.strerror}") from None
        if not line.startswith((b"SSH-2.0-", b"SSH-1.99-")):
            raise _no_ssh(line, where)
        self._ahead = heard[heard.index(line) :]
        self._patient()

    def _patient(self) -> None:
        """Reads wait for ever from now on; sends look at the deadline now and then."""
        if isinstance(self._pipe, socket.socket):
            self._pipe.settimeout(None)
            self._pipe.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, int(_STALL * 1e6)))
        else:
            self._pipe.settimeout(_CHANNEL_STALL)  # for reads too: it has one for both


def _banner(heard: bytes) -> bytes | None:
    lines = heard.splitlines(keepends=True)
    return next((line for line in lines if line.startswith(b"SSH-") and line.endswith(b"\n")), None)


def port(settings: Settings) -> str:
    """The host's port in words; its address too when the user knows it by another name."""
    known = settings.name in (settings.host, settings.host.lower())
    return f"port {settings.port}" if known else f"port {settings.port} of {settings.name}"


def _silent(settings: Settings) -> Unreached:
    waited = seconds(settings.connect_timeout)
    text = (
        f"{port(settings)} accepts connections, and sent no SSH banner within {waited}: sshd hangs, or it is not sshd"
    )
    return unreached("silent", text)


def _no_ssh(heard: bytes, where: str) -> Unreached:
    return unreached("not-ssh", f"{where} does not speak SSH 2: it says {plain(heard, 60)!r}")


def _hung_up(heard: bytes, where: str) -> Unreached:
    said = f", saying {plain(heard, 60)!r}" if heard.strip() else ""
    hint = "see MaxStartups in its sshd_config, and its sshd's log"
    return unreached("lost", f"{where} closed the connection at once, without an SSH banner{said}", hint)


class Dialer:
    """Makes TCP connections that can be given up from another thread."""

    def __init__(self) -> None:
        self._enders: set[Callable[[], None]] = set()
        self._lock = threading.Lock()
        self._given_up = False

    def dial(self, settings: Settings, deadline: float) -> socket.socket:
        """Connects to a host's port. Raises: Unreached."""
        addresses = self._addresses(settings, deadline)
        last = OSError("no address")
        for tried, (family, _, _, _, address) in enumerate(addresses):
            share = (deadline - time.monotonic()) / (len(addresses) - tried)
            try:
                return self._connect(family, address, settings, max(share, 0.05))
            except OSError as error:
                last = error
        raise _unconnected(last, settings)

    def _connect(self, family: int, address: Any, settings: Settings, timeout: float) -> socket.socket:
        link = socket.socket(family, socket.SOCK_STREAM)
        try:
            with self._ended_by(lambda: link.shutdown(socket.SHUT_RDWR)):
                link.settimeout(timeout)
                if settings.bind:
                    link.bind((settings.bind, 0))
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                link.connect(address)
        except BaseException:
            link.close()
            raise
        return link

    def _addresses(self, settings: Settings, deadline: float) -> list[Any]:
        """Asks the resolver in a thread of its own: nothing else can stop waiting for a name server that is silent."""
        family = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}.get(settings.family, socket.AF_UNSPEC)
        answer: list[Any] = []
        done = threading.Event()

        def look_up() -> None:
            try:
                answer.extend(socket.getaddrinfo(settings.name, settings.port, family, socket.SOCK_STREAM))
            except (OSError, UnicodeError) as error:
                answer.append(error)
            done.set()

        if _numeric(settings.name):
            look_up()
        else:
            threading.Thread(target=look_up, daemon=True).start()
        with self._ended_by(done.set):
            done.wait(max(deadline - time.monotonic(), 0))
        if not answer:
            raise unreached("name", f"the name {settings.name} was not resolved in time: the name server is silent")
        if isinstance(answer[0], Exception):
            why = getattr(answer[0], "strerror", None) or answer[0]
            raise unreached("name", f"the name {settings.name} does not resolve: {why}")
        return answer

    @contextlib.contextmanager
    def _ended_by(self, end: Callable[[], None]) -> Iterator[None]:
        """Something that `give_up` ends by calling ``end``."""
        late = unreached("budget", "the run's time was up before it was connected")
        with self._lock:
            if self._given_up:
                raise late
            self._enders.add(end)
        try:
            yield
        finally:
            with self._lock:
                self._enders.discard(end)
            if self._given_up:
                raise late from None

    def give_up(self) -> None:
        """Ends every attempt that is under way, and all to come."""
        with self._lock:
            self._given_up = True
            for end in self._enders:
                with contextlib.suppress(OSError):
                    end()


def _numeric(name: str) -> bool:
    return ":" in name or name.replace(".", "").isdecimal()


def _unconnected(error: OSError, settings: Settings) -> Unreached:
    where = port(settings)
    if isinstance(error, TimeoutError):
        waited = seconds(settings.connect_timeout)
        text = f"no answer from {where} within {waited}: packets are dropped on the way, or it is down"
        return unreached("dropped", text, f"is it up, and does every firewall let port {settings.port} through?")
    if isinstance(error, ConnectionRefusedError):
        return unreached("refused", f"{where} refuses connections: nothing listens there", "is its sshd running?")
    if isinstance(error, ConnectionResetError):
        return _hung_up(b"", where)
    if error.errno in _NO_ROUTE:
        return unreached("no-route", f"there is no way to {where}: {error.strerror}")
    return unreached("error", f"no connection to {where}: {error.strerror or error}")


_NO_ROUTE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENONET, errno.ENETDOWN)

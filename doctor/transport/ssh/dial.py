"""The ways to a host's port, which can be given up at any time: TCP connections, and ProxyCommands."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import subprocess
import tempfile
import threading
import time
from typing import Any

from doctor.engine.quantities import seconds_text
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.remote.runtime.connecting import NO_ROUTE
from doctor.transport import TransportError, transport_error
from doctor.transport.ssh.config import SshHostConfig
from doctor.transport.ssh.stream import START_SSHD, describe_port, hung_up_error

_POLL_SECONDS = 0.2
"""Seconds between two tests whether the attempt was cancelled."""
SEGMENT_BYTES = 1220
"""Of a TCP segment either way: what fits into 1280 bytes, which every link of IPv6 carries (RFC 8200, section 5).

Where a smaller MTU on the way swallows the packets of that size the host is read all the same, and the fault is named.
"""
_ANSWERS = (errno.ECONNREFUSED, errno.ECONNRESET, errno.EPIPE)
"""Errors by which a host has answered at the address."""


class Dialer:
    """Makes TCP connections, from many threads at once."""

    def __init__(self) -> None:
        self._cancelled = threading.Event()
        self.reached: dict[str, str] = {}
        """By host the address that answered, be it with a refusal; where none did, the only one that it has."""

    def cancel(self) -> None:
        """Ends every attempt that runs, and all to come."""
        self._cancelled.set()

    def dial(self, settings: SshHostConfig, deadline: float) -> socket.socket:
        """Connects to a host's port, at the first of its addresses that answers. Raises: Unreached."""
        addresses = self._addresses(settings, deadline)
        last = OSError("no address")
        for tried, (family, _, _, _, address) in enumerate(addresses):
            share = (deadline - time.monotonic()) / (len(addresses) - tried)
            try:
                link = self._connect(family, address, settings.bind, time.monotonic() + max(share, 0.05))
            except OSError as error:
                last = error
                if error.errno in _ANSWERS:
                    self.reached[settings.host] = _without_zone(address)
            else:
                self.reached[settings.host] = _without_zone(address)
                return link
        if len(addresses) == 1:
            self.reached[settings.host] = _without_zone(addresses[0][4])
        raise _connect_error(last, settings)

    def _connect(self, family: int, address: Any, bind: str, deadline: float) -> socket.socket:
        link = socket.socket(family, socket.SOCK_STREAM)
        try:
            link.setblocking(False)
            if bind:
                link.bind((bind, 0))
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
            code = link.connect_ex(address)
            if code == errno.EINPROGRESS:
                code = self._await_connect(link, deadline)
            if code:
                raise OSError(code, os.strerror(code))
        except BaseException:
            link.close()
            raise
        return link

    def _await_connect(self, link: socket.socket, deadline: float) -> int:
        """What became of an attempt: an error number, or 0."""
        poll = select.poll()
        poll.register(link, select.POLLOUT)
        while (remaining := deadline - time.monotonic()) > 0:
            if poll.poll(min(remaining, _POLL_SECONDS) * 1000):
                return link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            self._raise_if_cancelled()
        return errno.ETIMEDOUT

    def _addresses(self, settings: SshHostConfig, deadline: float) -> list[Any]:
        """Resolves the name in a thread of its own: the wait for a dead name server cannot be cancelled."""
        answer: list[Any] = []
        done = threading.Event()

        def ask() -> None:
            answer.extend(_resolve_name(settings))
            done.set()

        if ":" in settings.name or settings.name.replace(".", "").isdecimal():
            ask()
        else:
            threading.Thread(target=ask, daemon=True).start()
            while (
                not done.wait(min(max(deadline - time.monotonic(), 0), _POLL_SECONDS)) and time.monotonic() < deadline
            ):
                self._raise_if_cancelled()
        self._raise_if_cancelled()
        if not answer:
            raise transport_error(
                "name", filled("the name {0} was not resolved in time: the name server does not answer", settings.name)
            )
        if isinstance(answer[0], Exception):
            why = getattr(answer[0], "strerror", None) or answer[0]
            raise transport_error("name", filled("the name {0} does not resolve: {1}", settings.name, why))
        return answer

    def _raise_if_cancelled(self) -> None:
        if self._cancelled.is_set():
            raise transport_error("budget", "the run's time limit was reached before it was connected")


def _without_zone(address: Any) -> str:
    """The address of a socket address, without the interface of a link-local one."""
    return str(address[0]).partition("%")[0]


def _resolve_name(settings: SshHostConfig) -> list[Any]:
    """The addresses of a name, or the error alone."""
    family = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}.get(settings.family, socket.AF_UNSPEC)
    try:
        return socket.getaddrinfo(settings.name, settings.port, family, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return [error]


def _connect_error(error: OSError, settings: SshHostConfig) -> TransportError:
    where = describe_port(settings)
    if isinstance(error, TimeoutError):
        waited = seconds_text(settings.connect_timeout)
        text = filled("no answer from {0} within {1}: packets are dropped, or the host is down", where, waited)
        return transport_error(
            "dropped", text, filled("Check that it is up, and that every firewall allows port {0}.", settings.port)
        )
    if isinstance(error, ConnectionRefusedError):
        return transport_error("refused", filled("{0} refuses connections: nothing listens there", where), START_SSHD)
    if isinstance(error, ConnectionResetError):
        return hung_up_error(b"", where)
    if error.errno in NO_ROUTE:
        return transport_error("no-route", filled("no route to {0}: {1}", where, error.strerror))
    return transport_error("error", filled("no connection to {0}: {1}", where, error.strerror or error))


_STDERR_TAIL = 4096


class ProxyProcess:
    """The running program, and our end of its stdin and stdout."""

    def __init__(self, command: str) -> None:
        self.stderr_tail = ""
        """The end of what it printed to stderr, once it has ended."""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 -- lives as long as the program
        self.socket, far = socket.socketpair()
        shell = os.environ.get("SHELL") or "/bin/sh"
        try:
            with far:
                self._program = subprocess.Popen(
                    [shell, "-c", "exec " + command],
                    stdin=far.fileno(),
                    stdout=far.fileno(),
                    stderr=self._errors,
                    start_new_session=True,
                )
        except OSError as error:
            self.socket.close()
            raise transport_error(
                "jump", filled("its ProxyCommand could not be started: {0}", error.strerror)
            ) from None

    def end(self) -> None:
        """Kills it and all that it started; leaves no zombie."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._program.pid, signal.SIGKILL)
        self._program.wait()
        with self._errors, contextlib.suppress(OSError):
            self._errors.seek(max(self._errors.seek(0, os.SEEK_END) - _STDERR_TAIL, 0))
            self.stderr_tail = strip_control_chars(self._errors.read())

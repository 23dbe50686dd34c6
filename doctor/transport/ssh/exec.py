"""One command on an open connection: its input, its outputs, its end."""

from __future__ import annotations

import threading
import time
from typing import NoReturn

import paramiko

from doctor.engine.sanitize import plain
from doctor.transport import Said, Trouble
from doctor.transport.messages import seconds, size, unreached
from doctor.transport.process import NO_STATUS
from doctor.transport.ssh.paramiko_transport import Bell, Wire, signal_number

_WINDOW = 1 << 18
"""Bytes that a host may be ahead of us: what a flood can pile up, for each host, before we look."""
_CHUNK = 1 << 20
_SLICE = 1 << 15
_BLOCKED = 0.02
"""Seconds between two tries to send when the host's window is full, which hardly ever happens."""


class _Patience(threading.Event):
    """An event that paramiko waits for without a limit; we have one."""

    def __init__(self, deadline: float) -> None:
        super().__init__()
        self._deadline = deadline

    def wait(self, timeout: float | None = None) -> bool:
        """Raises: TimeoutError."""
        if not super().wait(max(self._deadline - time.monotonic(), 0)):
            raise TimeoutError
        return True


class Session:
    """One command: `open`, then `run` or `start`, once each."""

    def __init__(self, wire: Wire, limit: int) -> None:
        self._wire, self._limit = wire, limit
        self._bell = Bell()
        self._out, self._err = bytearray(), bytearray()
        self._sent = 0.0

    def open(self, timeout: float) -> None:
        """Opens a channel, within ``timeout`` seconds. Raises: Unreached, and nothing was asked of the host yet."""
        self._wire.stream.deadline = time.monotonic() + timeout
        try:
            self._channel = self._wire.open_session(window_size=_WINDOW, timeout=timeout)
        except paramiko.ChannelException as error:
            why = self._wire.refusals.get(self._wire.number()) or plain(str(error.text))
            text = f"it refused to open a session: {why}"
            raise unreached("error", text, "see MaxSessions in its sshd_config") from None
        except (paramiko.SSHException, EOFError, OSError):
            stage = "the opening of a session"
            raise (self._wire.late(stage) if self._wire.is_active() else self._wire.broken(stage)) from None
        for buffer in (self._channel.in_buffer, self._channel.in_stderr_buffer):
            buffer.set_event(self._bell)

    def run(self, command: str, stdin: bytes, timeout: float) -> Said:
        """Runs the command. Raises: Unreached, with what was said until then."""
        channel, deadline = self._channel, time.monotonic() + timeout
        self._wire.stream.deadline = deadline
        channel.event = _Patience(deadline)
        self._sent = time.time()
        try:
            self._ask(channel, command)
            channel.settimeout(0.0)
            self._talk(channel, memoryview(stdin), deadline)
        except TimeoutError:
            self._late(timeout)
        except (paramiko.SSHException, EOFError, OSError):
            if time.monotonic() > deadline:
                self._late(timeout)
        return self._end(channel)

    def start(self, command: str) -> paramiko.Channel:
        """Starts the command, and leaves it to the caller. Raises: Unreached."""
        deadline = time.monotonic() + self._wire.timeout
        self._channel.event = _Patience(deadline)
        try:
            self._ask(self._channel, command)
        except TimeoutError:
            raise self._wire.late("the start of the command") from None
        if not self._wire.is_active():
            raise self._wire.broken("the start of the command")
        self._wire.stream.deadline = float("inf")
        return self._channel

    def _ask(self, channel: paramiko.Channel, command: str) -> None:
        try:
            channel.exec_command(command)
        except paramiko.SSHException:
            if self._wire.is_active():
                self._fail("error", "it refused to run the command")

    def _talk(self, channel: paramiko.Channel, stdin: memoryview, deadline: float) -> None:
        """Both directions at once, until the command has ended. Raises: TimeoutError, OSError."""
        while True:
            self._bell.rest()
            ended = channel.closed or (channel.eof_received and channel.status_event.is_set())
            self._listen(channel)
            if ended:
                return
            stdin = self._feed(channel, stdin)
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._bell.wait(min(left, _BLOCKED) if stdin else left)

    def _listen(self, channel: paramiko.Channel) -> None:
        while channel.recv_ready():
            self._out += channel.recv(_CHUNK)
            self._bound()
        while channel.recv_stderr_ready():
            self._err += channel.recv_stderr(_CHUNK)
            self._bound()

    def _bound(self) -> None:
        if len(self._out) + len(self._err) > self._limit:
            self._fail("flood", f"it printed more than {size(self._limit)}, and was cut off")

    def _feed(self, channel: paramiko.Channel, stdin: memoryview) -> memoryview:
        """Sends as much as the host takes in. It stays open behind the last byte."""
        try:
            while stdin and not channel.closed:
                stdin = stdin[channel.send(bytes(stdin[:_SLICE])) :]
        except TimeoutError:
            pass  # the window is full
        except OSError:  # it may have ended just now
            if not channel.closed:
                raise
        return stdin[:0] if channel.closed else stdin

    def _end(self, channel: paramiko.Channel) -> Said:
        name = self._wire.signals.pop(channel.chanid, "")
        code = -signal_number(name) if name else channel.exit_status
        if name and code == 0:
            self._fail("error", f"the command was ended by a signal, {plain(name, 20)}")
        if not name and code < 0:
            self._fail("lost", "the connection was cut before the command ended")
        return self._said(code)

    def _late(self, timeout: float) -> NoReturn:
        if self._channel.exit_status >= 0:
            text = f"the command ended, but what it left behind held its output open for {seconds(timeout)}"
            self._fail("timeout", text)
        self._fail("timeout", f"the command did not end within {seconds(timeout)}")

    def _fail(self, kind: Trouble, text: str) -> NoReturn:
        raise unreached(kind, text, said=self._said(NO_STATUS))

    def _said(self, code: int) -> Said:
        return Said(code, bytes(self._out), bytes(self._err), self._sent, time.time())

"""One command on an open connection: its input, its outputs, its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NoReturn

from doctor.engine.quantities import bytes_text, seconds_text
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled, joined
from doctor.transport import CommandResult, TransportErrorKind, transport_error
from doctor.transport.conversation import NO_STATUS
from doctor.transport.patience import TURN, Patience
from doctor.transport.ssh.lean_paramiko import paramiko
from doctor.transport.ssh.paramiko_transport import DataEvent, SshConnection, signal_number

_WINDOW = 1 << 18
"""The receive window in bytes: what a flood can pile up, for each host, before it is read."""
_CHUNK = 1 << 20
_MAX_SEND = 1 << 15
_SEND_RETRY = 0.02
"""Seconds between two tries to send when the host's window is full, which hardly ever happens."""


class _DeadlineEvent(threading.Event):
    """An event that paramiko waits for without a limit; we have one."""

    def __init__(self, deadline: float) -> None:
        super().__init__()
        self._deadline = deadline

    def wait(self, timeout: float | None = None) -> bool:
        """Raises: TimeoutError."""
        if not super().wait(max(self._deadline - time.monotonic(), 0)):
            raise TimeoutError
        return True


class ExecSession:
    """One command: `open`, then `run` or `start`, once each; `run` again while it ``waits``."""

    def __init__(self, connection: SshConnection, limit: int) -> None:
        self._connection, self._limit = connection, limit
        self._data_event = DataEvent()
        self._out, self._err = bytearray(), bytearray()
        self._sent = 0.0
        self.waits = False
        """The command has answered, has not ended, and may be sent more."""

    def open(self, timeout: float) -> None:
        """Opens a channel, within ``timeout`` seconds. Raises: Unreached, before any command was sent to the host."""
        self._connection.stream.deadline = time.monotonic() + timeout
        try:
            self._channel = self._connection.open_session(window_size=_WINDOW, timeout=timeout)
        except paramiko.ChannelException as error:
            why = self._connection.refusals.get(self._connection.last_channel_number()) or strip_control_chars(
                str(error.text)
            )
            text = filled("it refused to open a session: {0}", why)
            raise transport_error("error", text, "see MaxSessions in its sshd_config") from None
        except (paramiko.SSHException, EOFError, OSError):
            stage = "the opening of a session"
            raise (
                self._connection.late_error(stage)
                if self._connection.is_active()
                else self._connection.broken_error(stage)
            ) from None
        for buffer in (self._channel.in_buffer, self._channel.in_stderr_buffer):
            buffer.set_event(self._data_event)

    def can_resume(self) -> bool:
        """Whether the command is still there."""
        return self.waits and self._connection.is_active() and not (self._channel.closed or self._channel.eof_received)

    def close(self) -> None:
        """Ends a command that waits."""
        self._channel.close()

    def run(self, command: str, stdin: Callable[[], bytes], timeout: float, end: bytes = b"") -> CommandResult:
        """Runs the command to its end, or until its output ends with ``end``; without one, sends more to that it runs.

        ``stdin`` makes its input, which is dropped once it is sent: many commands run at once.

        Raises: TransportError, with the output until then.
        """
        channel, deadline = self._channel, time.monotonic() + timeout
        self._connection.stream.deadline = deadline
        channel.event = _DeadlineEvent(deadline)
        self._sent = time.time()
        self.waits = False
        try:
            if command:
                self._request_exec(channel, command)
            channel.settimeout(0.0)
            self.waits = self._exchange(channel, memoryview(stdin()), Patience(timeout), end)
        except TimeoutError:
            self._fail_late(timeout)
        except (paramiko.SSHException, EOFError, OSError):
            if time.monotonic() > deadline:
                self._fail_late(timeout)
        return self._result(0) if self.waits else self._finish(channel)

    def start(self, command: str) -> paramiko.Channel:
        """Starts the command, and leaves it to the caller. Raises: Unreached."""
        deadline = time.monotonic() + self._connection.timeout
        self._channel.event = _DeadlineEvent(deadline)
        try:
            self._request_exec(self._channel, command)
        except TimeoutError:
            raise self._connection.late_error("the start of the command") from None
        if not self._connection.is_active():
            raise self._connection.broken_error("the start of the command")
        self._connection.stream.deadline = float("inf")
        return self._channel

    def _request_exec(self, channel: paramiko.Channel, command: str) -> None:
        try:
            channel.exec_command(command)
        except paramiko.SSHException:
            if self._connection.is_active():
                self._fail("error", "it refused to run the command")

    def _exchange(self, channel: paramiko.Channel, stdin: memoryview, patience: Patience, end: bytes) -> bool:
        """Both directions at once, until the command has ended, or its output ends so: True.

        Raises: TimeoutError, OSError.
        """
        while True:
            self._data_event.reset()
            ended = channel.closed or (channel.eof_received and channel.status_event.is_set())
            self._read_output(channel)
            if ended:
                return False
            if end and self._out.endswith(end):
                return True
            stdin = self._send_stdin(channel, stdin)
            remaining = patience.remaining()
            if remaining <= 0:
                raise TimeoutError
            self._data_event.wait(min(remaining, _SEND_RETRY if stdin else TURN))

    def _read_output(self, channel: paramiko.Channel) -> None:
        while channel.recv_ready():
            self._out += channel.recv(_CHUNK)
            self._check_limit()
        while channel.recv_stderr_ready():
            self._err += channel.recv_stderr(_CHUNK)
            self._check_limit()

    def _check_limit(self) -> None:
        if len(self._out) + len(self._err) > self._limit:
            self._fail("flood", filled("it printed more than {0}, and was closed", bytes_text(self._limit)))

    def _send_stdin(self, channel: paramiko.Channel, stdin: memoryview) -> memoryview:
        """Sends as much as the host takes in. It stays open behind the last byte."""
        try:
            while stdin and not channel.closed:
                stdin = stdin[channel.send(bytes(stdin[:_MAX_SEND])) :]
        except TimeoutError:
            pass  # the window is full
        except OSError:  # it may have ended just now
            if not channel.closed:
                raise
        return memoryview(b"") if channel.closed or not stdin else stdin

    def _finish(self, channel: paramiko.Channel) -> CommandResult:
        name = self._connection.signals.pop(channel.chanid, "")
        code = -signal_number(name) if name else channel.exit_status
        if name and code == 0:
            self._fail("error", filled("the command was killed by a signal, {0}", strip_control_chars(name, 20)))
        if not name and code < 0:
            self._fail("lost", "the connection was cut before the command ended")
        return self._result(code)

    def _fail_late(self, timeout: float) -> NoReturn:
        if self._channel.exit_status >= 0:
            text = filled(
                "the command ended, but a process that it started held its output open for {0}", seconds_text(timeout)
            )
            self._fail("timeout", text)
        text = filled("the command did not end within {0}", seconds_text(timeout))
        lost, hint = self._connection.stream.lost_segments()
        self._fail("timeout", joined(": ", (text, lost)) if lost else text, hint)

    def _fail(self, kind: TransportErrorKind, text: str, hint: str = "") -> NoReturn:
        raise transport_error(kind, text, hint, self._result(NO_STATUS))

    def _result(self, code: int) -> CommandResult:
        out, err = self._out, self._err
        self._out, self._err = bytearray(), bytearray()  # a command that waits need not keep what it said
        return CommandResult(code, bytes(out), bytes(err), self._sent, time.time())

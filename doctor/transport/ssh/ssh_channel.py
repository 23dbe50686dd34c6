"""The far end of a conversation over a channel of an SSH connection."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from doctor.transport import TransportError, transport_error
from doctor.transport.conversation import MAX_KEPT_STDERR, SILENCE
from doctor.transport.ssh.lean_paramiko import paramiko
from doctor.transport.ssh.paramiko_transport import DataEvent, SshConnection, signal_number

_CHUNK = 1 << 16
_MAX_SEND = 1 << 15
_SEND_RETRY = 0.02
"""Seconds between two tries to send when the host's window is full."""
_OUTPUT_GRACE = 0.3
"""Seconds that output may follow the exit status: what comes later is not the program's."""


class _ExitStatusEvent(threading.Event):
    """The event that paramiko sets for the exit status; it rings as data does."""

    def __init__(self, data_event: DataEvent, set_before: bool) -> None:
        super().__init__()
        self._data_event = data_event
        if set_before:
            self.set()

    def set(self) -> None:
        super().set()
        self._data_event.set()


class SshChannel:
    """`doctor.transport.conversation.ByteChannel`.

    ``leave`` gets at the end why the connection is of no more use, or None, and may raise Unreached.
    """

    def __init__(
        self, connection: SshConnection, channel: paramiko.Channel, on_end: Callable[[TransportError | None], None]
    ) -> None:
        self.received_bytes, self.err = 0, bytearray()
        self._connection, self._channel, self._on_end = connection, channel, on_end
        self._data_event = DataEvent()
        self._exited_at = 0.0
        for buffer in (channel.in_buffer, channel.in_stderr_buffer):
            buffer.set_event(self._data_event)
        early = channel.status_event
        channel.status_event = _ExitStatusEvent(self._data_event, early.is_set())
        if early.is_set():  # it came while we changed them
            channel.status_event.set()
        channel.settimeout(0.0)
        self._data_event.set()

    def wait(self, writing: bool, seconds: float) -> None:
        limits = [seconds, *([_SEND_RETRY] if writing else []), *([_OUTPUT_GRACE] if self._exited_at else [])]
        self._data_event.wait(min(limits))
        self._data_event.reset()

    def wake(self) -> None:
        self._data_event.set()

    def abort(self) -> None:
        self._connection.stream.abort()

    def write(self, data: memoryview) -> int:
        self._connection.stream.deadline = time.monotonic() + SILENCE
        try:
            return self._channel.send(bytes(data[:_MAX_SEND]))
        except TimeoutError:  # the window is full
            return 0
        except (paramiko.SSHException, EOFError) as error:
            raise OSError(str(error)) from None
        finally:
            self._connection.stream.deadline = float("inf")

    def read(self) -> bytes | None:
        over = self._output_complete()  # asked first: what it said last is there by then
        channel = self._channel
        chunk = channel.recv(_CHUNK) if channel.recv_ready() else b""
        stderr_chunk = channel.recv_stderr(_CHUNK) if channel.recv_stderr_ready() else b""
        self.received_bytes += len(chunk) + len(stderr_chunk)
        self.err += stderr_chunk
        del self.err[:-MAX_KEPT_STDERR]
        if chunk or stderr_chunk:
            self._data_event.set()  # there may be more
        return chunk if chunk or not over else None

    def close_input(self) -> None:
        try:
            self._channel.shutdown_write()
        except (paramiko.SSHException, EOFError, OSError):
            return  # then it is gone, and reading says so

    def ended(self) -> bool:
        return self._channel.closed or self._channel.status_event.is_set()

    def release(self) -> int | None:
        channel = self._channel
        name = self._connection.signals.pop(channel.chanid, "")
        code = -signal_number(name) if name else channel.exit_status
        has_status = channel.status_event.is_set() and bool(name or code >= 0)
        cut = None if has_status else self._end_error()
        try:
            if not cut:
                channel.close()
        finally:
            self._on_end(cut)
        return None if name and not code else code

    def _output_complete(self) -> bool:
        """Whether the program has ended, and all its output has arrived."""
        channel = self._channel
        if channel.closed or (channel.eof_received and channel.status_event.is_set()):
            return True
        if channel.status_event.is_set():
            self._exited_at = self._exited_at or time.monotonic()
        return bool(self._exited_at) and time.monotonic() - self._exited_at > _OUTPUT_GRACE

    def _end_error(self) -> TransportError:
        if self._connection.is_active() and not self._channel.closed:
            return transport_error("timeout", "the program did not end after its input was closed")
        return transport_error("lost", "the connection was cut before the program ended")

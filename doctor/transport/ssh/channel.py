"""The far end of a conversation over a channel of an SSH connection."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import paramiko

from doctor.transport import Unreached
from doctor.transport.conversation import KEPT_ERR, SILENCE
from doctor.transport.messages import unreached
from doctor.transport.ssh.paramiko_transport import Bell, Wire, signal_number

_CHUNK = 1 << 16
_SLICE = 1 << 15
_BLOCKED = 0.02
"""Seconds between two tries to send when the host's window is full."""
_HELD = 0.3
"""Seconds that output may follow the exit status: what comes later is not the program's."""


class _Ringing(threading.Event):
    """The event that paramiko sets for the exit status; it rings as data does."""

    def __init__(self, bell: Bell, set_before: bool) -> None:
        super().__init__()
        self._bell = bell
        if set_before:
            self.set()

    def set(self) -> None:
        super().set()
        self._bell.set()


class Channel:
    """`doctor.transport.conversation.Far`.

    ``leave`` is told at the end why the connection is of no more use, or None, and may raise Unreached.
    """

    def __init__(self, wire: Wire, channel: paramiko.Channel, leave: Callable[[Unreached | None], None]) -> None:
        self.heard, self.err = 0, bytearray()
        self._wire, self._channel, self._leave = wire, channel, leave
        self._bell = Bell()
        self._told = 0.0
        for buffer in (channel.in_buffer, channel.in_stderr_buffer):
            buffer.set_event(self._bell)
        early = channel.status_event
        channel.status_event = _Ringing(self._bell, early.is_set())
        if early.is_set():  # it came while we changed them
            channel.status_event.set()
        channel.settimeout(0.0)
        self._bell.set()

    def wait(self, writing: bool, seconds: float) -> None:
        limits = [seconds, *([_BLOCKED] if writing else []), *([_HELD] if self._told else [])]
        self._bell.wait(min(limits))
        self._bell.rest()

    def nudge(self) -> None:
        self._bell.set()

    def abort(self) -> None:
        self._wire.stream.abort()

    def write(self, data: memoryview) -> int:
        self._wire.stream.deadline = time.monotonic() + SILENCE
        try:
            return self._channel.send(bytes(data[:_SLICE]))
        except TimeoutError:  # the window is full
            return 0
        except (paramiko.SSHException, EOFError) as error:
            raise OSError(str(error)) from None
        finally:
            self._wire.stream.deadline = float("inf")

    def read(self) -> bytes | None:
        over = self._over()  # asked first: what it said last is there by then
        channel = self._channel
        chunk = channel.recv(_CHUNK) if channel.recv_ready() else b""
        words = channel.recv_stderr(_CHUNK) if channel.recv_stderr_ready() else b""
        self.heard += len(chunk) + len(words)
        self.err += words
        del self.err[:-KEPT_ERR]
        if chunk or words:
            self._bell.set()  # there may be more
        return chunk if chunk or not over else None

    def shut(self) -> None:
        try:
            self._channel.shutdown_write()
        except (paramiko.SSHException, EOFError, OSError):
            return  # then it is gone, and reading says so

    def ended(self) -> bool:
        return self._channel.closed or self._channel.status_event.is_set()

    def free(self) -> int | None:
        channel = self._channel
        name = self._wire.signals.pop(channel.chanid, "")
        code = -signal_number(name) if name else channel.exit_status
        told = channel.status_event.is_set() and bool(name or code >= 0)
        cut = None if told else self._why()
        try:
            if not cut:
                channel.close()
        finally:
            self._leave(cut)
        return None if name and not code else code

    def _over(self) -> bool:
        """Whether the program has ended, and all that it said has come."""
        channel = self._channel
        if channel.closed or (channel.eof_received and channel.status_event.is_set()):
            return True
        if channel.status_event.is_set():
            self._told = self._told or time.monotonic()
        return bool(self._told) and time.monotonic() - self._told > _HELD

    def _why(self) -> Unreached:
        if self._wire.is_active() and not self._channel.closed:
            return unreached("timeout", "the program did not end when its input did")
        return unreached("lost", "the connection was cut before the program ended")

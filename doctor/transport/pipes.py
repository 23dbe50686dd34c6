"""The far end of a conversation over files of this machine: a child's pipes, or a socket."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
from collections.abc import Callable

from doctor.transport import TransportError, transport_error
from doctor.transport.conversation import MAX_KEPT_STDERR
from doctor.transport.process import Children, has_ended

_CHUNK = 1 << 16
_POLL_SECONDS = 0.1
"""Seconds between two polls of a child where the kernel has no notification of its end."""


class _FileChannel:
    """What pipes and sockets have in common: `doctor.transport.conversation.ByteChannel` without its end."""

    def __init__(self, out: int, into: int, err: int | None = None) -> None:
        self.received_bytes, self.err = 0, bytearray()
        self._output_file, self._input_file, self._error_file = out, into, err
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._reading = {file for file in (out, err) if file is not None}
        for file in (*self._reading, self._wake_fd):
            self._poll.register(file, select.POLLIN)
        for file in (*self._reading, into):
            os.set_blocking(file, False)

    def wait(self, writing: bool, seconds: float) -> None:
        if writing:
            self._poll.register(self._input_file, select.POLLOUT)
        self._poll.poll(seconds * 1000)
        if writing:
            self._poll.unregister(self._input_file)
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake_fd)

    def wake(self) -> None:
        os.eventfd_write(self._wake_fd, 1)

    def abort(self) -> None:
        """Nothing here waits but `wait`, which a nudge ends."""

    def write(self, data: memoryview) -> int:
        try:
            return os.write(self._input_file, data[:_CHUNK])
        except BlockingIOError:
            return 0

    def read(self) -> bytes | None:
        over = self.ended()  # asked first: what it said last is there by then
        if self._error_file in self._reading:
            self.err += self._read_available(self._error_file) or b""
            del self.err[:-MAX_KEPT_STDERR]
        chunk = self._read_available(self._output_file) if self._output_file in self._reading else None
        return None if over and not chunk else chunk

    def ended(self) -> bool:
        return False

    def _read_available(self, file: int | None) -> bytes | None:
        """What a file has to say now; None at its end."""
        assert file is not None
        try:
            chunk = os.read(file, _CHUNK)
        except BlockingIOError:
            return b""
        self.received_bytes += len(chunk)
        if not chunk:
            self._poll.unregister(file)
            self._reading.discard(file)
        return chunk or None


class PipeChannel(_FileChannel):
    """A child, whose end is the end of the conversation even if what it started holds its output open.

    ``judge`` makes of the exit status what the conversation gives for it, or raises Unreached.
    """

    def __init__(
        self,
        children: Children,
        child: subprocess.Popen[bytes],
        interpret_status: Callable[[int], int | None] = lambda code: code,
    ) -> None:
        assert child.stdin and child.stdout and child.stderr
        super().__init__(child.stdout.fileno(), child.stdin.fileno(), child.stderr.fileno())
        self._children, self._child, self._interpret_status = children, child, interpret_status
        self._pidfd = -1
        with contextlib.suppress(OSError):  # an old kernel, or a sandbox that knows no such call
            self._pidfd = os.pidfd_open(child.pid)
            self._poll.register(self._pidfd, select.POLLIN)

    def wait(self, writing: bool, seconds: float) -> None:
        super().wait(writing, seconds if self._pidfd >= 0 else min(seconds, _POLL_SECONDS))

    def close_input(self) -> None:
        assert self._child.stdin
        self._child.stdin.close()

    def ended(self) -> bool:
        return has_ended(self._child)

    def release(self) -> int | None:
        code = self._children.end(self._child)
        for file in (self._pidfd, self._wake_fd):
            if file >= 0:
                os.close(file)
        if self._children.closed:
            raise transport_error("budget", "the run's time limit was reached")
        return self._interpret_status(code)


class SocketChannel(_FileChannel):
    """A connection, whose end is the program's end."""

    def __init__(self, link: socket.socket) -> None:
        self._socket, self._at_end = link, False
        super().__init__(link.fileno(), os.dup(link.fileno()))

    def read(self) -> bytes | None:
        try:
            chunk = super().read()
        except OSError as error:
            raise _lost_error(error) from None
        self._at_end = chunk is None
        return chunk

    def ended(self) -> bool:
        return self._at_end

    def close_input(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def release(self) -> int | None:
        self._socket.close()
        os.close(self._input_file)
        os.close(self._wake_fd)
        return None


def _lost_error(error: OSError) -> TransportError:
    return transport_error("lost", f"the connection was cut: {error.strerror}")

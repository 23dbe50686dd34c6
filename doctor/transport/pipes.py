"""The far end of a conversation over files of this machine: a child's pipes, or a socket."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
from collections.abc import Callable

from doctor.transport import Unreached
from doctor.transport.conversation import KEPT_ERR
from doctor.transport.messages import unreached
from doctor.transport.process import Children, has_ended

_CHUNK = 1 << 16
_LOOK = 0.1
"""Seconds between two looks at a child where the kernel cannot tell of its end by itself."""


class _Files:
    """What pipes and sockets have in common: `doctor.transport.conversation.Far` without its end."""

    def __init__(self, out: int, into: int, err: int | None = None) -> None:
        self.heard, self.err = 0, bytearray()
        self._out, self._into, self._said = out, into, err
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._reading = {file for file in (out, err) if file is not None}
        for file in (*self._reading, self._bell):
            self._poll.register(file, select.POLLIN)
        for file in (*self._reading, into):
            os.set_blocking(file, False)

    def wait(self, writing: bool, seconds: float) -> None:
        if writing:
            self._poll.register(self._into, select.POLLOUT)
        self._poll.poll(seconds * 1000)
        if writing:
            self._poll.unregister(self._into)
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._bell)

    def nudge(self) -> None:
        os.eventfd_write(self._bell, 1)

    def abort(self) -> None:
        """Nothing here waits but `wait`, which a nudge ends."""

    def write(self, data: memoryview) -> int:
        try:
            return os.write(self._into, data[:_CHUNK])
        except BlockingIOError:
            return 0

    def read(self) -> bytes | None:
        over = self.ended()  # asked first: what it said last is there by then
        if self._said in self._reading:
            self.err += self._take(self._said) or b""
            del self.err[:-KEPT_ERR]
        chunk = self._take(self._out) if self._out in self._reading else None
        return None if over and not chunk else chunk

    def ended(self) -> bool:
        return False

    def _take(self, file: int | None) -> bytes | None:
        """What a file has to say now; None at its end."""
        assert file is not None
        try:
            chunk = os.read(file, _CHUNK)
        except BlockingIOError:
            return b""
        self.heard += len(chunk)
        if not chunk:
            self._poll.unregister(file)
            self._reading.discard(file)
        return chunk or None


class Pipes(_Files):
    """A child, whose end is the end of the conversation even if what it started holds its output open.

    ``judge`` makes of the exit status what the conversation gives for it, or raises Unreached.
    """

    def __init__(
        self, children: Children, child: subprocess.Popen[bytes], judge: Callable[[int], int | None] = lambda code: code
    ) -> None:
        assert child.stdin and child.stdout and child.stderr
        super().__init__(child.stdout.fileno(), child.stdin.fileno(), child.stderr.fileno())
        self._children, self._child, self._judge = children, child, judge
        self._watch = -1
        with contextlib.suppress(OSError):  # an old kernel, or a sandbox that knows no such call
            self._watch = os.pidfd_open(child.pid)
            self._poll.register(self._watch, select.POLLIN)

    def wait(self, writing: bool, seconds: float) -> None:
        super().wait(writing, seconds if self._watch >= 0 else min(seconds, _LOOK))

    def shut(self) -> None:
        assert self._child.stdin
        self._child.stdin.close()

    def ended(self) -> bool:
        return has_ended(self._child)

    def free(self) -> int | None:
        code = self._children.end(self._child)
        for file in (self._watch, self._bell):
            if file >= 0:
                os.close(file)
        if self._children.closed:
            raise unreached("budget", "the run's time was up")
        return self._judge(code)


class Socket(_Files):
    """A connection, whose end is the program's end."""

    def __init__(self, link: socket.socket) -> None:
        self._link, self._gone = link, False
        super().__init__(link.fileno(), os.dup(link.fileno()))

    def read(self) -> bytes | None:
        try:
            chunk = super().read()
        except OSError as error:
            raise _cut(error) from None
        self._gone = chunk is None
        return chunk

    def ended(self) -> bool:
        return self._gone

    def shut(self) -> None:
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_WR)

    def free(self) -> int | None:
        self._link.close()
        os.close(self._into)
        os.close(self._bell)
        return None


def _cut(error: OSError) -> Unreached:
    return unreached("lost", f"the connection was cut: {error.strerror}")

"""This machine, without SSH: children that cannot outstay their time, say more than their limit, or leave anything.

`PipeChannel` and `SocketChannel` are the far ends of a conversation over files of this machine.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from doctor.engine.bounded_run import has_ended
from doctor.engine.texts import filled
from doctor.transport import CommandResult, RemoteSession, TransportError, transport_error
from doctor.transport.conversation import MAX_KEPT_STDERR, LineSession, run_to_end
from doctor.transport.options import MAX_OUTPUT

_GRACE = 1.0
"""Seconds between asking a child to end and killing it."""
_CHUNK = 1 << 16
_POLL_SECONDS = 0.1
"""Seconds between two polls of a child where the kernel has no notification of its end."""


class Children:
    """The children of one transport, so that all can be ended at once."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self.closed = False

    def start(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Starts a child as the leader of its own process group, with three pipes.

        Raises: Unreached, when it cannot be started or all was closed.
        """
        pipe = subprocess.PIPE
        try:
            child = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, env=env, start_new_session=True)
        except OSError as error:
            raise transport_error(
                "error", filled("{0} could not be started: {1}", Path(argv[0]).name, error.strerror)
            ) from None
        with self._lock:
            self._running.add(child)
        if self.closed:
            self.end(child)
            raise transport_error("budget", "the run's time limit was reached")
        return child

    def end(self, child: subprocess.Popen[bytes], kill: bool = True) -> int:
        """Reaps the child, by default after killing its process group. Returns its exit status.

        The leader is reaped last: until then its number cannot pass to a stranger.
        """
        with self._lock:
            self._running.discard(child)
        if kill:
            _kill(child)
        for stream in (child.stdin, child.stdout, child.stderr):
            if stream:
                with contextlib.suppress(OSError):
                    stream.close()
        return child.wait()

    def close(self) -> None:
        """Kills all that runs: whoever waits for it learns so at once."""
        with self._lock:
            self.closed = True
            running = list(self._running)
        _kill(*running)


def _kill(*children: subprocess.Popen[bytes]) -> None:
    """Asks first: a collector then ends what it started in sessions of their own. Whoever stays is killed."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for child in children:
            if child.returncode is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.pid, number)
        deadline = time.monotonic() + _GRACE
        while number == signal.SIGTERM and time.monotonic() < deadline and not all(map(has_ended, children)):
            time.sleep(0.002)


class _FileChannel:
    """What pipes and sockets have in common: `doctor.transport.conversation.ByteChannel` without its end."""

    def __init__(self, out: int, into: int, err: int | None = None, until_drained: bool = False) -> None:
        self.received_bytes, self.err, self.max_kept_stderr = 0, bytearray(), MAX_KEPT_STDERR
        self.sent, self.until_drained = 0.0, until_drained
        self._output_file, self._input_file, self._error_file = out, into, err
        self._poll = select.poll()
        self._reading = {file for file in (out, err) if file is not None}
        # A command that runs to its end needs no nudge, and so no more files than the command's own.
        self._wake_fd = -1 if until_drained else os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        for file in (*self._reading, *([] if until_drained else [self._wake_fd])):
            self._poll.register(file, select.POLLIN)
        for file in (*self._reading, into):
            os.set_blocking(file, False)

    def wait(self, writing: bool, seconds: float) -> None:
        if writing:
            self._poll.register(self._input_file, select.POLLOUT)
        self._poll.poll(seconds * 1000)
        if writing:
            self._poll.unregister(self._input_file)
        if self._wake_fd >= 0:
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
            del self.err[: -self.max_kept_stderr]
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
        until_drained: bool = False,
    ) -> None:
        assert child.stdin and child.stdout and child.stderr
        super().__init__(child.stdout.fileno(), child.stdin.fileno(), child.stderr.fileno(), until_drained)
        self._children, self._child, self._interpret_status = children, child, interpret_status
        self._pidfd = -1
        if not until_drained:
            self._watch_end()

    def _watch_end(self) -> None:
        """Has `wait` return at the child's end."""
        with contextlib.suppress(OSError):  # an old kernel, or a sandbox that knows no such call
            self._pidfd = os.pidfd_open(self._child.pid)
            self._poll.register(self._pidfd, select.POLLIN)

    def wait(self, writing: bool, seconds: float) -> None:
        drains = self.until_drained and bool(self._reading)
        if self._pidfd < 0 and not drains:
            self._watch_end()
        super().wait(writing, seconds if self._pidfd >= 0 or drains else min(seconds, _POLL_SECONDS))

    def complete(self) -> bool:
        return not self._reading and self.ended()

    def close_input(self) -> None:
        assert self._child.stdin
        self._child.stdin.close()

    def ended(self) -> bool:
        return has_ended(self._child)

    def release(self) -> int | None:
        # What a command has left running by intent stays; what holds its outputs does not.
        code = self._children.end(self._child, kill=not (self.until_drained and self.complete()))
        for file in (self._pidfd, self._wake_fd):
            if file >= 0:
                os.close(file)
        if self._children.closed:
            raise transport_error("budget", "the run's time limit was reached")
        return self._interpret_status(code)


def run_command(
    children: Children,
    argv: Sequence[str],
    stdin: bytes,
    timeout: float,
    limit: int,
    env: Mapping[str, str] | None = None,
    last: bytes = b"",
) -> CommandResult:
    """Runs ``argv`` on this machine; the rest is as `run_to_end` has it. Raises: TransportError."""
    sent = time.time()
    channel = PipeChannel(children, children.start(argv, env), until_drained=True)
    channel.sent = sent
    return run_to_end(channel, stdin, timeout, limit, last)


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
    return transport_error("lost", filled("the connection was cut: {0}", error.strerror))


class Local:
    """Runs commands by ``sh`` on this machine, for every host name."""

    def __init__(self, max_output: int = MAX_OUTPUT) -> None:
        self.warnings: list[str] = []
        self._limit = max_output
        self._children = Children()

    def run(self, host: str, command: str, stdin: bytes, timeout: float, last: bytes = b"") -> CommandResult:
        """Like `doctor.transport.Transport.run`: a command that is late is killed with all that it started.

        Behind ``last``, if given, its input ends.
        """
        return run_command(self._children, ["/bin/sh", "-c", command], stdin, timeout, self._limit, last=last)

    def open_session(self, host: str, command: str) -> RemoteSession:
        return LineSession(host, PipeChannel(self._children, self._children.start(["/bin/sh", "-c", command])))

    def close(self) -> None:
        self._children.close()

"""A child process that cannot outstay its time, say more than its limit, or leave anything behind."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from doctor.transport import CommandResult, TransportError, format_seconds, format_size, transport_error

_CHUNK = 1 << 16
_GRACE = 1.0
"""Seconds between asking a child to end and killing it."""
NO_STATUS = -1
"""Exit code of a command whose end was not observed."""


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
            raise transport_error("error", f"{Path(argv[0]).name} could not be started: {error.strerror}") from None
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

    def reap(self, child: subprocess.Popen[bytes], deadline: float) -> int | None:
        """Waits until ``deadline`` for a child that has closed its output. None: it still runs."""
        pause = 0.001
        while not os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if time.monotonic() > deadline or self.closed:
                return None
            time.sleep(pause)
            pause = min(pause * 2, 0.1)
        return self.end(child, kill=False)

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


def has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Whether the child has ended; it is not reaped."""
    if child.returncode is not None:
        return True
    try:
        return bool(os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT))
    except ChildProcessError:
        return True


def run_command(
    children: Children,
    argv: Sequence[str],
    stdin: bytes,
    timeout: float,
    limit: int,
    env: Mapping[str, str] | None = None,
) -> CommandResult:
    """Runs ``argv``, feeds it ``stdin`` while reading its output, and keeps its stdin open until it ends.

    ``timeout`` in seconds; ``limit`` in bytes for stdout and stderr together.
    Raises: Unreached, of kind timeout, flood, budget or error, with what was said until then.
    """
    sent = time.time()
    child = children.start(argv, env)
    pipes = _ChildPipes(child, stdin, limit)
    deadline = time.monotonic() + timeout
    code: int | None = None
    try:
        if pipes.pump_until(deadline):
            code = children.reap(child, deadline)
    finally:
        if code is None:
            children.end(child)
    result = CommandResult(NO_STATUS if code is None else code, bytes(pipes.out), bytes(pipes.err), sent, time.time())
    if children.closed:
        raise transport_error("budget", "the run's time limit was reached before it answered", partial_result=result)
    if code is None:
        raise _unfinished_error(result, pipes.byte_count > limit, timeout, limit)
    return result


def _unfinished_error(result: CommandResult, flooding: bool, timeout: float, limit: int) -> TransportError:
    if flooding:
        return transport_error(
            "flood", f"it printed more than {format_size(limit)}, and was closed", partial_result=result
        )
    return transport_error(
        "timeout", f"the command did not end within {format_seconds(timeout)}", partial_result=result
    )


class _ChildPipes:
    """Both directions of a child's pipes."""

    def __init__(self, child: subprocess.Popen[bytes], stdin: bytes, limit: int) -> None:
        assert child.stdin and child.stdout and child.stderr
        self.out, self.err = bytearray(), bytearray()
        self._limit, self._unsent = limit, memoryview(stdin)
        self._stdin = child.stdin.fileno()
        self._readers = {child.stdout.fileno(): self.out, child.stderr.fileno(): self.err}
        self._poll = select.poll()
        for file in self._readers:
            self._poll.register(file, select.POLLIN)
        if stdin:
            os.set_blocking(self._stdin, False)
            self._poll.register(self._stdin, select.POLLOUT)

    @property
    def byte_count(self) -> int:
        return len(self.out) + len(self.err)

    def pump_until(self, deadline: float) -> bool:
        """Whether both outputs came to their end before ``deadline``, within the limit."""
        while self._readers:
            remaining = deadline - time.monotonic()
            if remaining <= 0 or self.byte_count > self._limit:
                return False
            for file, _ in self._poll.poll(remaining * 1000):
                self._write() if file == self._stdin else self._read(file)
        return self.byte_count <= self._limit

    def _read(self, file: int) -> None:
        chunk = os.read(file, _CHUNK)
        self._readers[file] += chunk
        if not chunk:
            self._poll.unregister(file)
            del self._readers[file]

    def _write(self) -> None:
        try:
            self._unsent = self._unsent[os.write(self._stdin, self._unsent[:_CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:  # it reads no more; what it says still counts
            self._unsent = self._unsent[:0]
        if not self._unsent:
            self._poll.unregister(self._stdin)

"""A child process that cannot outstay its time, say more than its limit, or leave anything behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from doctor.transport import transport_error

_GRACE = 1.0
"""Seconds between asking a child to end and killing it."""


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

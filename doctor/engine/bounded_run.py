"""Runs a program of this machine: up to a limit of bytes and of time, and nothing of it is left behind."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from doctor.engine.texts import filled

_CHUNK = 1 << 16
_END_SECONDS = 1.0
"""Seconds that a program has to end after it has closed its output."""


class TooMuchOutput(OSError):
    """The program printed more than the limit, and was ended."""


def run_bounded(
    argv: Sequence[str], seconds: float, limit: int, environ: Mapping[str, str] | None = None, folder: str = "/"
) -> subprocess.CompletedProcess[bytes]:
    """What a program prints and its exit code; its stdin is empty. It and all that it started are killed at the end.

    ``limit``: bytes of stdout and stderr together, counted while they come.
    Raises: TooMuchOutput; subprocess.TimeoutExpired after ``seconds``; OSError, when it cannot be started.
    """
    deadline = time.monotonic() + seconds
    with subprocess.Popen(
        argv,
        env=environ,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as child:
        try:
            outputs = _read(child, deadline, limit, seconds)
            _await_end(child, max(deadline, time.monotonic() + _END_SECONDS), seconds)
        finally:
            # Also what it has left running, which may hold the pipes; before the leader's number is free for others.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    return subprocess.CompletedProcess(argv, child.returncode, *outputs)


def _await_end(child: subprocess.Popen[bytes], deadline: float, seconds: float) -> None:
    """Raises: subprocess.TimeoutExpired."""
    pause = 0.001
    while not has_ended(child):
        if time.monotonic() > deadline:
            raise subprocess.TimeoutExpired(child.args, seconds)
        time.sleep(pause)
        pause = min(pause * 2, 0.05)


def has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Whether the child has ended; it is not reaped."""
    if child.returncode is not None:
        return True
    try:
        return bool(os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT))
    except ChildProcessError:
        return True


def _read(child: subprocess.Popen[bytes], deadline: float, limit: int, seconds: float) -> tuple[bytes, bytes]:
    """Both outputs, up to their ends, or to the end of the program where others keep them open."""
    assert child.stdout is not None and child.stderr is not None
    outputs = {child.stdout.fileno(): bytearray(), child.stderr.fileno(): bytearray()}
    out, err = outputs.values()
    with selectors.DefaultSelector() as selector:
        for handle in outputs:
            os.set_blocking(handle, False)
            selector.register(handle, selectors.EVENT_READ)
        while selector.get_map():
            ended = has_ended(child)
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(child.args, seconds)
            ready = selector.select(0.0 if ended else min(max(deadline - time.monotonic(), 0), 0.1))
            for key, _ in ready:
                chunk = os.read(key.fd, _CHUNK)
                outputs[key.fd] += chunk
                if not chunk:
                    selector.unregister(key.fd)
            if len(out) + len(err) > limit:
                raise TooMuchOutput(filled("more than {0} bytes", limit))
            if ended and not ready:
                break
    return bytes(out), bytes(err)

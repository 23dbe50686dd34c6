"""The end of a process follows the end of the process that started it."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import signal

PR_SET_PDEATHSIG = 1
F_SETSIG = 10


def die_with_parent(parent: int) -> None:
    """From now on the kernel kills this process when its parent ends, however that happens."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def die_with_agent(agent: int) -> None:
    """The same for the interpreter that the agent has started, perhaps through a wrapper script.

    The wrapper can outlive the agent. The other end of stdin cannot: when it closes, the kernel kills this process.
    """
    if os.getppid() == agent:
        die_with_parent(agent)
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    with contextlib.suppress(OSError):
        fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(0, F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)
    stdin = select.poll()
    stdin.register(0, 0)
    if stdin.poll(0):  # already closed
        os._exit(0)

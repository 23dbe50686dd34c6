"""A rank as a process: it ends with the one that started it, and may run on some of the CPUs."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import signal
import threading
from collections.abc import Iterable

PR_SET_PDEATHSIG = 1
F_SETSIG = 10
MOST_CPUS = 8192  # numbers of CPUs that a kernel may have


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


def take_turns_on_cpus(rank_count: int) -> None:
    """Where a host's ranks have too few CPUs for themselves and gloo's threads, none interrupts another by waking up.

    gloo's thread serves a connection only while the rank's own thread is not in it, and asks again without a pause
    (gloo/transport/tcp/pair.cc, ``Pair::handleEvents``). A rank that is interrupted in the middle of a message
    therefore keeps its host's CPUs busy until it goes on: with eight ranks on two CPUs for half of a collective.
    sched(7), "SCHED_BATCH": "the scheduler will apply a small scheduling penalty with respect to wakeup behavior".
    Every user may choose it, and the share of the CPUs is the same. A policy that the job has set is left alone.

    ``rank_count``: the ranks of this host.
    """
    with contextlib.suppress(AttributeError, OSError):  # no such policy, or a sandbox that forbids the call
        if 2 * rank_count > len(os.sched_getaffinity(0)) and os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def cpu_binding() -> dict[str, str]:
    """``cpus``: those on which the calling thread may run; ``permitted``: those on which its control group lets it run.

    A list that the kernel does not tell is empty. A thread of its own tries all CPUs, and the kernel gives it those
    that the control group permits: sched_setaffinity(2), "the set of CPUs on which the thread actually runs will be the
    intersection". The CPUs of the calling thread stay as they are.
    """
    affinity = {"cpus": "", "permitted": ""}

    def widen() -> None:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, range(MOST_CPUS))
            affinity["permitted"] = listed_numbers(os.sched_getaffinity(0))

    with contextlib.suppress(OSError):
        affinity["cpus"] = listed_numbers(os.sched_getaffinity(0))
    with contextlib.suppress(RuntimeError):  # no thread can be started
        thread = threading.Thread(target=widen)
        thread.start()
        thread.join()
    return affinity


def listed_numbers(numbers: Iterable[int]) -> str:
    """Such as ``0-3,8``."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)

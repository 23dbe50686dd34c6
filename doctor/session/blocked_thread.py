"""Waits for a thread that a file server may hold up, and does not give it up because the machine is busy."""

from __future__ import annotations

import threading
import time

MAX_INTERVAL_SECONDS = 0.05
"""Seconds between two readings of what the thread did."""


def join_unless_blocked(thread: threading.Thread, blocked_seconds: float, most_seconds: float) -> bool:
    """Whether the thread ended before it was blocked for ``blocked_seconds``, and within ``most_seconds`` in all.

    A thread is blocked while it neither runs nor waits for a CPU: while a file system does not answer. Where the
    kernel does not count that (no ``schedstat``), all time is taken for blocked.
    """
    start = time.monotonic()
    interval = min(MAX_INTERVAL_SECONDS, blocked_seconds)
    while True:
        thread.join(interval)
        elapsed = time.monotonic() - start
        if not thread.is_alive():
            return True
        if elapsed >= most_seconds or elapsed - cpu_seconds(thread) >= blocked_seconds:
            return False


def cpu_seconds(thread: threading.Thread) -> float:
    """Seconds for which the thread ran, or could have run and had no CPU; 0 where they are not known.

    Source: ``Documentation/scheduler/sched-stats.rst`` of Linux, "/proc/<pid>/schedstat": two times in nanoseconds.
    """
    try:
        with open(f"/proc/self/task/{thread.native_id}/schedstat", "rb") as file:
            running, waiting, *_ = map(int, file.read(200).split())
    except (OSError, ValueError):  # also of a thread that has just ended
        return 0.0
    return (running + waiting) / 1e9

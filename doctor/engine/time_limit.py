"""A time limit for work on foreign data that has no loop of ours to ask the time in."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

LEAST_SECONDS = 1.0
"""For each part of the work, even where the earlier parts used up the time."""


class TimePassed(BaseException):
    """The work takes too long: no ``except`` between keeps it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises: TimePassed after so many seconds, where signals reach this thread; 0: no limit."""

    def end(number: int, frame: FrameType | None) -> None:
        raise TimePassed

    if not seconds or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds, 5.0)  # again, where a finalizer swallowed it
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGALRM) is end:  # a signal that ends the program has a timer of its own
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

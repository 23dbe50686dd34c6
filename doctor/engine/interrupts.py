"""Signals that end the program. Imports next to nothing: it is loaded before anything that takes time.

A preflight that is stopped while it is still loading modules prints its line by itself (`doctor.preflight.early_end`);
later, and in all other commands, a signal raises `SystemExit` with 128 + its number in the main thread, once.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from types import FrameType

from doctor.engine.texts import filled

STOP_SIGNALS = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGXCPU,
)
"""SIGPIPE is not among them: Python ignores it, and a reader that has gone changes no exit code."""
SHUTDOWN_SECONDS = 20
"""Seconds from a signal to a forced exit: the signal may have interrupted code that holds a lock."""
RETRY_SECONDS = 0.01
"""Seconds until a signal that came where no exception can be raised is handled."""


def raise_on_stop() -> None:
    """From now on a signal raises SystemExit, and those that come after it do nothing."""
    handle(_stop)


def ignore() -> None:
    """From now on signals do nothing: the result is out, and the exit code with it.

    Raises: SystemExit for a signal that has come before, and was not handled yet.
    """
    handle(lambda number: None)


def hold(argv: list[str]) -> None:
    """Of a preflight that has printed its line: keeps signals from it while the interpreter ends.

    The interpreter takes its handlers down some time before the process is gone, and a signal would then replace the
    exit code that the line says. It leaves those that are ignored; what is blocked is so in this thread alone, and
    another that still waits for a host would take the signal.
    """
    if argv[:1] == ["preflight"]:
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def process_age() -> float:
    """Seconds since this process was started, the time before its first line of Python included."""
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError):
        return 0.0


def handle(handler: Callable[[int], None]) -> None:
    """Calls ``handler`` with the number of a signal that is to end the program.

    By Python's own functions, which a program that is started later does not inherit, as it would SIG_IGN.
    """

    def receive(number: int, frame: FrameType | None) -> None:
        if _swallows_exceptions(frame):
            signal.signal(signal.SIGALRM, lambda _, later: receive(number, later))
            signal.setitimer(signal.ITIMER_REAL, RETRY_SECONDS)
        else:
            handler(number)

    for number in STOP_SIGNALS:
        try:
            signal.signal(number, receive)
        except ValueError:  # not the main thread, in tests
            return


def _swallows_exceptions(frame: FrameType | None) -> bool:
    """Whether the interpreter is in a function that lets no exception out: a finalizer, a weak reference's."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "__del__" or (code.co_name, os.path.basename(code.co_filename)) in _CALLBACKS:
            return True
        frame = frame.f_back
    return False


_CALLBACKS = frozenset(
    {
        ("cb", "<frozen importlib._bootstrap>"),
        ("remove", "weakref.py"),
        ("_remove", "_weakrefset.py"),
        ("__call__", "weakref.py"),
    }
)
"""Functions of the standard library that run when a weak reference dies, with their files."""


def _stop(number: int) -> None:
    ignore()
    signal.signal(signal.SIGALRM, lambda *_: os._exit(128 + number))
    signal.alarm(SHUTDOWN_SECONDS)
    raise SystemExit(128 + number)


def remove_old(path: str) -> None:
    """Removes a regular file that an earlier run has written, so that it is not read as this run's."""
    try:
        if os.path.isfile(path) and not os.path.islink(path) and not os.path.ismount(path):
            os.unlink(path)
    except OSError as error:
        print_line(filled("doctor: {0} of an earlier run could not be removed: {1}", f"{path!r}", error.strerror))


def print_line(text: str) -> None:
    """One line on stderr, whether or not anybody reads it."""
    from doctor.engine.streams import print_stderr

    print_stderr(text)

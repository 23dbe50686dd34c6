"""Signals of a program on a host, and of what it starts."""

import _signal as signal  # type: ignore[import-not-found]  # `signal` without its slow enumerations
import os

TERMINATION_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


def on_termination(handler):
    """Sets the handler of the signals that ask a program to end."""
    for number in TERMINATION_SIGNALS:
        signal.signal(number, handler)


class TerminationHeld:
    """Signals that ask the program to end wait until its ``with`` ends.

    Around a fork and the entry of the child where the handler finds it: between the two, a handler would end the
    program and leave the child running.
    """

    def __enter__(self):
        signal.pthread_sigmask(signal.SIG_BLOCK, TERMINATION_SIGNALS)

    def __exit__(self, *_):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, TERMINATION_SIGNALS)


def restore_default_signals():
    """In a child: nothing of its parent's handlers, no signal held, and no writing to the parent's wake-up pipe."""
    signal.set_wakeup_fd(-1)
    on_termination(signal.SIG_DFL)
    for number in (signal.SIGPIPE, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TERMINATION_SIGNALS)


def wake_on_child_exit():
    """A file descriptor that becomes readable whenever a child ends."""
    reader, writer = os.pipe()
    for fd in (reader, writer):
        os.set_blocking(fd, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer)
    return reader

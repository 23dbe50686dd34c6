"""Signals of a program on a host, and of what it starts."""

import os
import signal

TERMINATION_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


def on_termination(handler):
    """Sets the handler of the signals that ask a program to end."""
    for number in TERMINATION_SIGNALS:
        signal.signal(number, handler)


def restore_default_signals():
    """In a child: nothing of its parent's handlers, and no writing to the parent's wake-up pipe."""
    signal.set_wakeup_fd(-1)
    on_termination(signal.SIG_DFL)
    for number in (signal.SIGPIPE, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)


def wake_on_child_exit():
    """A file descriptor that becomes readable whenever a child ends."""
    reader, writer = os.pipe()
    for fd in (reader, writer):
        os.set_blocking(fd, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer)
    return reader

"""Carries one stream of a watched job on to where it goes, and keeps a copy of lines that may tell a loss or a timeout.

A program of its own, so that the job's stream lives on when doctor ends or is killed. It takes from stdin what the job
writes, and writes it to stdout at once; while that is full, the job waits for it, as it would without doctor. The copy
never waits: it is a file that is begun anew when it has grown to `MAX_COPY`, and given up when it cannot be written.
Standard library alone.

    python -I -S output_pump.py COPY all|losses CONTROL
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys

BLOCK = 1 << 16
MAX_COPY = 4 << 20
"""Bytes of the copy, after which a new file takes its place; who reads it has the old one open."""
MAX_LINE = 8192
"""Bytes of a line that are copied."""
LOST_TARGET = 3
"""Exit code where no process takes the stream any more: the job's next write must fail, as it would without doctor."""
HALF_LINE = 4
"""Exit code where the stream has ended within a line."""
MARKS = (b"oss", b"OSS", b"atchdog caught")
"""Of a loss, and of the watchdogs of NCCL and HCCL ("Watchdog caught collective operation timeout")."""
LONGEST_MARK = max(map(len, MARKS))
IGNORED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGTSTP", "SIGTTOU", "SIGPIPE")


class LineCopy:
    """The copy: complete lines, those that may tell something or all."""

    def __init__(self, path: str, every_line: bool) -> None:
        self.path, self.every_line = path, every_line
        self.half_line = b""
        self.written = 0
        self.file = -1
        self.open()

    def open(self) -> None:
        with contextlib.suppress(OSError):
            if self.file >= 0:
                os.close(self.file)
            self.file = -1
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            self.file = os.open(self.path + ".new", flags, 0o600)
            os.rename(self.path + ".new", self.path)
        self.written = 0

    def add(self, data: bytes) -> None:
        if self.file < 0:
            return
        border = self.half_line[-LONGEST_MARK:] + data[:LONGEST_MARK]
        if not (self.every_line or is_telling(data) or is_telling(border)):
            end = max(data.rfind(b"\n"), data.rfind(b"\r"))
            if end < 0:
                self.half_line = (self.half_line + data)[:MAX_LINE]
                return
            if not is_telling(self.half_line):
                self.half_line = data[end + 1 :][:MAX_LINE]
                return
        *lines, last = (self.half_line + data).replace(b"\r", b"\n").split(b"\n")
        self.half_line = last[:MAX_LINE]
        kept = [line[:MAX_LINE] for line in lines if self.every_line or is_telling(line)]
        if kept:
            self.write(b"\n".join(kept) + b"\n")

    def write(self, lines: bytes) -> None:
        """To the file; a file system that is full ends the copy."""
        try:
            self.written += os.write(self.file, lines)
        except OSError:
            os.close(self.file)
            self.file = -1
            return
        if self.written > MAX_COPY:
            self.open()

    def end(self) -> None:
        """The last line may have no end."""
        if self.file >= 0 and self.half_line and (self.every_line or is_telling(self.half_line)):
            self.write(self.half_line + b"\n")


def is_telling(data: bytes) -> bool:
    """Whether a loss, or the timeout of a collective, may be in it."""
    return any(mark in data for mark in MARKS)


def carry(source: int, target: int, control: int, copy: LineCopy) -> int:
    """Until the job has closed the stream. Returns the exit code.

    ``control`` is answered when nothing is left to carry: ``.``, or ``-`` where the last line has no end yet.
    """
    poll = select.poll()
    for number in (source, control):
        poll.register(number, select.POLLIN)
    is_queried = half_line = False
    while True:
        ready = dict(poll.poll(0 if is_queried else None))
        if source in ready:
            data = read(source)
            if not data:
                copy.end()
                return HALF_LINE if half_line else 0
            if not write_all(target, data):
                return LOST_TARGET
            copy.add(data)
            half_line = not data.endswith(b"\n")
        elif is_queried:  # nothing is left of what was written before the question
            is_queried = False
            with contextlib.suppress(OSError):
                os.write(control, b"-" if half_line else b".")
        if control in ready:
            is_queried = bool(read(control))
            if not is_queried:  # doctor has ended; the job may go on
                poll.unregister(control)


def read(number: int) -> bytes:
    """What has come; empty at the end, which a terminal tells by an error."""
    try:
        return os.read(number, BLOCK)
    except OSError:
        return b""


def write_all(target: int, data: bytes) -> bool:
    """Whether all of it could be written. Waits, as the job would have to."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(target, view) :]
        except BlockingIOError:
            waiting = select.poll()
            waiting.register(target, select.POLLOUT)
            waiting.poll()
        except OSError:
            return False
    return True


def main() -> None:
    """Ends when the stream does; signals do not end it."""
    for name in IGNORED:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    copy = LineCopy(sys.argv[1], sys.argv[2] == "all")
    os._exit(carry(0, 1, int(sys.argv[3]), copy))


if __name__ == "__main__":
    main()

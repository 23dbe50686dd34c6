"""The job's stdout and stderr, each carried on by a process of its own, so that its losses can be read.

A pipe, a socket or a file becomes a pipe for the job, and a terminal a terminal of the same size and settings. Two
streams that lead to one place stay one, in the order in which they were written. /dev/null and closed streams are
left as they are. Order, bytes and time are not changed: see `doctor.watch.output_pump`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
import stat
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from doctor.engine.texts import filled
from doctor.watch import output_pump

DRAIN_SECONDS = 5.0
"""For what the job has written to reach its place, before doctor's own report follows it there."""
MAX_RESTARTS = 5
_PUMP = str(Path(output_pump.__file__))


class _Stream:
    """One place that the job writes to: our end of it, the job's end, and the process between them and the place."""

    def __init__(self, target: int, numbers: tuple[int, ...], copy: Path, every_line: bool) -> None:
        """``numbers``: the job's file numbers. Raises: OSError."""
        self.target, self.numbers, self.copy, self.every_line = target, numbers, copy, every_line
        self.is_terminal = os.isatty(target)
        self.source, self.job_end = os.openpty() if self.is_terminal else os.pipe()
        self.restarts = 0
        self.thread: threading.Thread | None = None
        self.control: socket.socket | None = None
        try:
            if self.is_terminal:
                settings = termios.tcgetattr(self.target)
                settings[1] &= ~termios.OPOST  # the terminal itself does that
                termios.tcsetattr(self.job_end, termios.TCSANOW, settings)
                self.resize()
            self._start()
        except BaseException:
            self._close_ends()
            raise

    def resize(self) -> None:
        """The job's terminal gets the size of the real one."""
        with contextlib.suppress(OSError):
            size = fcntl.ioctl(self.target, termios.TIOCGWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
            fcntl.ioctl(self.source, termios.TIOCSWINSZ, size)

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            if self.control:
                self.control.close()
            self.control = ours
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", _PUMP, str(self.copy), "all" if self.every_line else "losses", "2"],
                stdin=self.source,
                stdout=self.target,
                stderr=theirs.fileno(),
                start_new_session=True,
            )

    def look(self) -> None:
        """Starts the process again if something killed it; closes the job's stream where its target is gone."""
        if self.source < 0 or self.process.poll() is None:
            return
        if self.process.returncode in (0, output_pump.HALF_LINE, output_pump.LOST_TARGET):
            os.close(self.source)
            self.source = -1
        elif self.restarts < MAX_RESTARTS:
            self.restarts += 1
            with contextlib.suppress(OSError):
                self._start()
        elif self.thread is None:  # the job must not stand still because of this process
            assert self.control
            control = self.control.dup()  # before the thread: the end of the watch may close ours meanwhile
            self.thread = threading.Thread(target=self._carry_here, args=(self.source, control), daemon=True)
            self.thread.start()

    def _carry_here(self, source: int, control: socket.socket) -> None:
        copy = output_pump.LineCopy(str(self.copy), self.every_line)
        with control:
            output_pump.carry(source, self.target, control.fileno(), copy)
        self.source = -1
        os.close(source)

    def drain(self, limit: float) -> bool:
        """Waits until all that was written has reached its place; at most until ``limit``.

        Returns whether the last line has no end, such as a progress bar.
        """
        assert self.control
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        with contextlib.suppress(OSError):
            self.control.sendall(b"?")
        while self.process.poll() is None and (seconds_left := limit - time.monotonic()) > 0:
            with contextlib.suppress(OSError):
                if poll.poll(min(seconds_left, 0.05) * 1000) and (reply := self.control.recv(16)):
                    return reply.endswith(b"-")
            time.sleep(0.001)  # it has closed its end, and is about to be gone
        return self.process.poll() == output_pump.HALF_LINE

    def close_job_end(self) -> None:
        """The job has its own by now."""
        if self.job_end >= 0:
            os.close(self.job_end)
            self.job_end = -1

    def close(self) -> None:
        """The process lives on as long as anything of the job holds the stream; a thread waits for its end."""
        self._close_ends()
        if self.process.poll() is None:
            threading.Thread(target=self.process.wait, daemon=True).start()

    def _close_ends(self) -> None:
        self.close_job_end()
        if self.source >= 0 and self.thread is None:
            os.close(self.source)
            self.source = -1
        if self.control:
            self.control.close()


class JobOutput:
    """Both streams of one command. ``rank``: of the process that is started, where it is one; for the copies' names."""

    def __init__(self, folder: Path, rank: int | None = None, every_line: bool = False) -> None:
        """Streams that cannot be carried stay as they are, and ``notes`` says so."""
        self.streams: list[_Stream] = []
        self.notes: list[str] = []
        name = f"{'' if rank is None else rank}-{os.getpid()}"
        for target, numbers in _places():
            copy = folder / f"{name}-{'stdout' if 1 in numbers else 'stderr'}.lines"
            try:
                self.streams.append(_Stream(target, numbers, copy, every_line))
            except (OSError, termios.error, subprocess.SubprocessError) as error:
                self.notes.append(filled("no loss is read from {0}: {1}", copy.stem.rpartition("-")[2], error))

    @property
    def stdout(self) -> int | None:
        """What the job gets as its stdout; None: doctor's own."""
        return next((stream.job_end for stream in self.streams if 1 in stream.numbers), None)

    @property
    def stderr(self) -> int | None:
        """The same for stderr."""
        return next((stream.job_end for stream in self.streams if 2 in stream.numbers), None)

    def started(self) -> None:
        """The job runs, and has its ends."""
        for stream in self.streams:
            stream.close_job_end()

    def look(self) -> None:
        """To be called now and then."""
        for stream in self.streams:
            stream.look()

    def resize(self) -> bool:
        """The terminal has another size. Returns whether the job writes to one."""
        terminals = [stream for stream in self.streams if stream.is_terminal]
        for stream in terminals:
            stream.resize()
        return bool(terminals)

    def drain(self) -> bool:
        """What the job has written stands before what doctor writes next. Returns whether stderr is within a line."""
        limit = time.monotonic() + DRAIN_SECONDS
        half_lines = {stream.numbers: stream.drain(limit) for stream in self.streams}
        return any(2 in numbers and half_line for numbers, half_line in half_lines.items())

    def close(self) -> None:
        """Doctor needs them no more."""
        for stream in self.streams:
            stream.close()


def _places() -> Iterator[tuple[int, tuple[int, ...]]]:
    """Where the streams lead, with the numbers of those that lead there."""
    streams_by_file: dict[tuple[int, int], list[int]] = {}
    for number in (1, 2):
        with contextlib.suppress(OSError):
            about = os.fstat(number)
            is_device = stat.S_ISCHR(about.st_mode) and not os.isatty(number)
            if not is_device and fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY:
                streams_by_file.setdefault((about.st_dev, about.st_ino), []).append(number)
    for numbers in streams_by_file.values():
        yield numbers[0], tuple(numbers)

"""A program on a terminal of its own, as its foreground job: what it writes, and how the terminal is left."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType

from doctor.report.live.terminal_keeper import ENTER, LEAVE
from tests.readable import readable

LIMIT = 90.0
"""Seconds, on a machine under load."""


class TerminalProgram:
    """Until the end of the ``with``."""

    def __init__(
        self,
        argv: Sequence[str],
        columns: int = 80,
        rows: int = 24,
        environ: dict[str, str] | None = None,
        *,
        controls: bool = True,
    ) -> None:
        """``controls``: it is the controlling terminal, whose keys send signals and whose end hangs up."""
        self.master, self.slave = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(self.slave)
        self.output = b""
        self.changed = threading.Condition()
        self.process = subprocess.Popen(
            argv,
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            env={**os.environ, "TERM": "xterm-256color", **(environ or {})},
            start_new_session=True,
            preexec_fn=(lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0) and None) if controls else None,  # noqa: PLW1509
        )
        self.stop, self._stopped = os.pipe()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        while True:
            ready = readable([self.master, self.stop])
            if self.master not in ready:
                return
            data = os.read(self.master, 1 << 16)
            with self.changed:
                self.output += data
                self.changed.notify_all()

    def resize(self, columns: int, rows: int) -> None:
        """As a terminal does whose window is drawn larger: its foreground job gets SIGWINCH."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait_for(self, condition: bytes | Callable[[bytes], bool]) -> bytes:
        """Until a text, or what a function looks for, is in the output. Returns the output."""
        matches = (lambda output: condition in output) if isinstance(condition, bytes) else condition
        with self.changed:
            assert self.changed.wait_for(lambda: matches(self.output), LIMIT), self.output[-2000:]
            return self.output

    def press(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def end(self) -> int:
        """Waits for its end. Returns the exit code."""
        return self.process.wait(LIMIT)

    @property
    def is_sane(self) -> bool:
        """Whether the terminal is as it was: settings, cursor and screen."""
        last = max(self.output.rfind(ENTER), 0)
        return termios.tcgetattr(self.slave) == self.before and (
            ENTER not in self.output or LEAVE in self.output[last:]
        )

    def wait_until_sane(self) -> None:
        limit = time.monotonic() + LIMIT
        while not self.is_sane and time.monotonic() < limit:
            time.sleep(0.01)
        assert self.is_sane, self.output[-500:]

    @property
    def ordinary(self) -> bytes:
        """What stands on the ordinary screen."""
        return re.sub(re.escape(ENTER) + b".*?" + re.escape(LEAVE), b"", self.output, flags=re.DOTALL)

    def __enter__(self) -> TerminalProgram:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._stopped)
        self.reader.join()
        for number in (self.master, self.slave, self.stop):
            os.close(number)

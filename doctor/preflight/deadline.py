"""What goes on beside a preflight: signs of life on stderr, and an end that comes whatever hangs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from doctor.engine.record import HostRecord

EVERY = 10.0
"""Seconds between two signs of life."""


class Heartbeat:
    """One line on stderr every ten seconds: who waits for a job's log must see that something goes on."""

    def __init__(self, stream: TextIO | None, began: float, every: float = EVERY) -> None:
        self.stream, self.began, self.every = stream, began, every
        self.total = self.answered = self.missed = 0
        self.doing = "looking for the hosts"
        self._over = threading.Event()
        if stream is not None:
            threading.Thread(target=self._beat, daemon=True).start()

    def expect(self, total: int) -> None:
        """So many hosts are asked now."""
        self.total, self.doing = total, "waiting for hosts"

    def step(self, host: str, record: HostRecord) -> None:
        """One more host is done."""
        if record.visit.trouble:
            self.missed += 1
        else:
            self.answered += 1

    def stage(self, name: str, seconds: float) -> None:
        """A stage of the smoke run is done; no name: it starts."""
        self.doing = f"smoke run: {name} done" if name else "smoke run: starting"

    def text(self) -> str:
        """The line, without its end."""
        hosts = f", {self.answered} of {self.total} hosts answered" if self.total else ""
        missed = f", {self.missed} could not be reached" if self.missed else ""
        return f"doctor preflight: {time.monotonic() - self.began:.0f} s, {self.doing}{hosts}{missed}"

    def _beat(self) -> None:
        while not self._over.wait(self.every):
            try:
                print(self.text(), file=self.stream, flush=True)
            except (OSError, ValueError):  # nobody reads any more; the verdict does not depend on it
                return

    def close(self) -> None:
        self._over.set()


class Deadline:
    """Ends the process at a moment, whatever it hangs in: a dead file system, a name server, a bug of ours."""

    def __init__(self, at: float, last_words: Callable[[], int]) -> None:
        """``at``: by the monotonic clock. ``last_words`` says what is to be said, and returns the exit code."""
        self._at, self._last_words = at, last_words
        self._over = threading.Event()
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        if self._over.wait(max(0.0, self._at - time.monotonic())):
            return
        code = 70
        try:
            code = self._last_words()
        finally:
            os._exit(code)

    def call_off(self) -> None:
        """The end came in time."""
        self._over.set()


def age() -> float:
    """Seconds since this process was started, the time before its first line of Python included."""
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError):
        return 0.0

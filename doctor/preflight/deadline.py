"""What goes on beside a preflight: signs of life on stderr, and an end that comes whatever hangs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

import msgspec

if TYPE_CHECKING:
    from doctor.engine.record import HostRecord

HEARTBEAT_SECONDS = 10.0
"""Seconds between two progress lines."""


class TimeBudget(msgspec.Struct, frozen=True):
    """The time that a preflight may take, by the monotonic clock."""

    start_time: float
    seconds: float

    @property
    def end(self) -> float:
        return self.start_time + self.seconds

    def elapsed_seconds(self) -> float:
        return time.monotonic() - self.start_time

    def remaining_seconds(self) -> float:
        """Negative once the budget has ended."""
        return self.end - time.monotonic()


class Heartbeat:
    """One line on stderr every ten seconds: who waits for a job's log must see that something goes on."""

    def __init__(self, stream: TextIO | None, start_time: float, interval: float = HEARTBEAT_SECONDS) -> None:
        self.stream, self.start_time, self.interval = stream, start_time, interval
        self.total = self.answered = self.unreachable = 0
        self.activity = "detecting the hosts"
        self._stop_event = threading.Event()
        if stream is not None:
            threading.Thread(target=self._print_lines, daemon=True).start()

    def expect(self, total: int) -> None:
        """So many hosts are asked now."""
        self.total, self.activity = total, "waiting for hosts"

    def step(self, host: str, record: HostRecord) -> None:
        """One more host is done."""
        if record.visit.failure:
            self.unreachable += 1
        else:
            self.answered += 1

    def stage(self, name: str, seconds: float) -> None:
        """A stage of the smoke run is done; no name: it starts."""
        self.activity = f"smoke run: {name} done" if name else "smoke run: starting"

    def text(self) -> str:
        """The line, without its end."""
        hosts = f", {self.answered} of {self.total} hosts answered" if self.total else ""
        missed = f", {self.unreachable} could not be reached" if self.unreachable else ""
        return f"doctor preflight: {time.monotonic() - self.start_time:.0f} s, {self.activity}{hosts}{missed}"

    def _print_lines(self) -> None:
        while not self._stop_event.wait(self.interval):
            try:
                print(self.text(), file=self.stream, flush=True)
            except (OSError, ValueError):  # nobody reads any more; the verdict does not depend on it
                return

    def close(self) -> None:
        self._stop_event.set()


class Deadline:
    """Ends the process at a fixed time, even if it hangs: in a file system, a name server, or a bug of doctor."""

    def __init__(self, at: float, on_expiry: Callable[[], int]) -> None:
        """``at``: by the monotonic clock. ``on_expiry`` says what is to be said, and returns the exit code."""
        self._deadline, self._on_expiry = at, on_expiry
        self._cancelled = threading.Event()
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        if self._cancelled.wait(max(0.0, self._deadline - time.monotonic())):
            return
        code = 70
        try:
            code = self._on_expiry()
        finally:
            os._exit(code)

    def cancel(self) -> None:
        """The end came in time."""
        self._cancelled.set()


def process_age() -> float:
    """Seconds since this process was started, the time before its first line of Python included."""
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError):
        return 0.0

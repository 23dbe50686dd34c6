"""What goes on beside a preflight: signs of life on stderr, and an end at the deadline, even if a step hangs."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

import msgspec

from doctor.engine.interrupts import process_age
from doctor.engine.language import localized, phrase
from doctor.report.layout.progress_line import stage_words

if TYPE_CHECKING:
    from doctor.engine.record import HostRecord

HEARTBEAT_SECONDS = 10.0
"""Seconds between two progress lines."""


REPORT_SECONDS = 0.3
"""Seconds for the report and the line on an idle machine."""
EVALUATION_SECONDS = 0.7
"""Seconds for all checks of a few hosts on an idle machine, and a part for each host beside them."""
SECONDS_PER_HOST = 0.008
MAX_SLOWNESS = 8.0
_EXPIRY_SECONDS = 30.0


class TimeBudget(msgspec.Struct, frozen=True):
    """The time that a preflight may take, by the monotonic clock.

    It is divided from its end: the report, before it the evaluation, before that the visits of the hosts. So the
    verdict stands on all that was received, even on a loaded machine.
    """

    start_time: float
    seconds: float
    slowness: float = 1.0
    """How many times longer this process takes than its CPU time; 1 on an idle machine."""

    @classmethod
    def of_this_process(cls, seconds: float) -> TimeBudget:
        """From the start of this process. The time to get here shows how loaded the machine is."""
        age = process_age()
        slowness = min(max(age / max(time.process_time(), 0.01), 1.0), MAX_SLOWNESS)
        return cls(time.monotonic() - age, seconds, slowness)

    @property
    def end(self) -> float:
        return self.start_time + self.seconds

    @property
    def report_end(self) -> float:
        """When the report must be under way; a step that hangs then is left behind."""
        return self.end - min(REPORT_SECONDS * self.slowness, self.seconds / 8)

    @property
    def evaluation_end(self) -> float:
        """When the last check must have been evaluated."""
        return self.report_end - min(REPORT_SECONDS * self.slowness, self.seconds / 8)

    def visit_seconds(self, host_count: int) -> float:
        """Seconds from now for the visits of so many hosts, the smoke run included."""
        remaining = self.evaluation_end - time.monotonic()
        reserve = (EVALUATION_SECONDS + SECONDS_PER_HOST * host_count) * self.slowness
        return max(0.1, remaining - min(remaining / 3, reserve))

    def report_seconds(self) -> float:
        """Seconds until the report must be under way; negative after that."""
        return self.report_end - time.monotonic()

    def elapsed_seconds(self) -> float:
        return time.monotonic() - self.start_time

    def remaining_seconds(self) -> float:
        """Negative once the budget has ended."""
        return self.end - time.monotonic()


class Heartbeat:
    """One line on stderr every ten seconds, so that a reader of the job's log sees progress."""

    def __init__(self, stream: TextIO | None, start_time: float, interval: float = HEARTBEAT_SECONDS) -> None:
        self.stream, self.start_time, self.interval = stream, start_time, interval
        self.total = self.answered = self.unreachable = 0
        self.activity = localized("detecting the hosts")
        self._stop_event = threading.Event()
        if stream is not None:
            threading.Thread(target=self._print_lines, daemon=True).start()

    def expect(self, total: int) -> None:
        self.total, self.activity = total, localized("waiting for hosts")

    def step(self, host: str, record: HostRecord) -> None:
        if record.visit.failure:
            self.unreachable += 1
        else:
            self.answered += 1

    def stage(self, name: str, seconds: float) -> None:
        """As `stage_words`."""
        self.activity = stage_words(name, seconds)

    def text(self) -> str:
        """The line, without its end."""
        parts = [f"{time.monotonic() - self.start_time:.0f} s", self.activity]
        if self.total:
            parts.append(phrase("{count} of {total} hosts answered", count=self.answered, total=self.total))
        parts += [phrase("{count} could not be reached", count=self.unreachable)] if self.unreachable else []
        return f"doctor preflight{localized(': ')}{localized(', ').join(parts)}"

    def _print_lines(self) -> None:
        while not self._stop_event.wait(self.interval):
            try:
                print(self.text(), file=self.stream, flush=True)
            except (OSError, ValueError):  # the reader has gone; the verdict does not depend on it
                return

    def close(self) -> None:
        self._stop_event.set()


class Deadline:
    """Ends the process at a fixed time, even if it hangs: in a file system, a name server, or a bug of doctor."""

    def __init__(
        self,
        at: float,
        on_expiry: Callable[[], int],
        end: float = float("inf"),
        fallback: Callable[[], int] = lambda: 70,
    ) -> None:
        """``at`` and ``end``: by the monotonic clock.

        ``on_expiry`` is called ``at``: it reports, and returns the exit code. If it hangs as well, or fails,
        ``fallback`` does so at the ``end``.
        """
        self._deadline, self._end, self._on_expiry, self._fallback = at, end, on_expiry, fallback
        self._cancelled = threading.Event()
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        if self._cancelled.wait(max(0.0, self._deadline - time.monotonic())):
            return
        code, codes = 70, queue.SimpleQueue[int]()
        threading.Thread(target=self._expire, args=[codes], daemon=True).start()
        try:
            try:
                code = codes.get(timeout=min(max(0.1, self._end - time.monotonic()), _EXPIRY_SECONDS))
            except queue.Empty:
                code = self._fallback()
        finally:
            os._exit(code)

    def _expire(self, codes: queue.SimpleQueue[int]) -> None:
        try:
            codes.put(self._on_expiry())
        except Exception:  # noqa: BLE001 - the rim: the fallback reports in its place
            return

    def cancel(self) -> None:
        self._cancelled.set()

"""How long a visit waits for its host, by time in which doctor itself could listen."""

from __future__ import annotations

import math
import threading
import time

TURN = 1.0
"""Seconds, after which `Patience` is to be asked again."""
_LATE = 2.0
"""Seconds more, from which on doctor itself stood still: suspended, or without a CPU."""
_MOST_PAUSES = 600.0
"""Seconds that are not counted against a host, all together."""


class Patience:
    """The time that a host has left, without pauses of this process: what came meanwhile waits to be read.

    A host that doctor could not listen to is neither late nor unreachable. It is asked in each `TURN`: by whoever
    waits, or by a thread of its own where none can, as while a connection is made (`watched`, until `close`).
    """

    def __init__(self, seconds: float = math.inf) -> None:
        self._began = self._last_turn = time.monotonic()
        self._seconds, self._pauses, self._count, self._closed = seconds, 0.0, 0, threading.Event()

    def elapsed(self) -> float:
        now = time.monotonic()
        pause = now - self._last_turn - TURN
        self._last_turn = now
        if pause > _LATE and self._pauses < _MOST_PAUSES:
            self._pauses += pause
            self._count += 1
        return now - self._began - self._pauses

    def remaining(self) -> float:
        return self._seconds - self.elapsed()

    def pauses(self) -> int:
        """How often this process stood still, also until just now."""
        self.elapsed()
        return self._count

    def watched(self) -> Patience:
        """The same, asked by a thread."""
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def close(self) -> None:
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(TURN):
            self.elapsed()

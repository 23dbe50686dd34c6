"""How long a visit waits for its host, by time in which doctor itself could listen."""

from __future__ import annotations

import threading
import time

TURN = 1.0
"""Seconds, after which `Patience.remaining` is to be asked again."""
_LATE = 2.0
"""Seconds more, from which on doctor itself stood still: suspended, or without a CPU."""
_MOST_PAUSES = 600.0
"""Seconds that are not counted against a host, all together."""


class Patience:
    """The time that a host has left, without pauses of this process: what came meanwhile waits to be read.

    A host that doctor could not listen to is neither late nor unreachable.
    """

    def __init__(self, seconds: float) -> None:
        self._last_turn = time.monotonic()
        self._end, self._pauses = self._last_turn + seconds, 0.0

    def remaining(self) -> float:
        """Seconds; none where it is over."""
        now = time.monotonic()
        pause = now - self._last_turn - TURN
        self._last_turn = now
        if pause > _LATE and self._pauses < _MOST_PAUSES:
            self._pauses += pause
            self._end += pause
        return self._end - now


class Standstills:
    """Counts how often this process stood still, until `close`: whatever it waited for then was not late."""

    def __init__(self) -> None:
        self._last_turn, self._count, self._closed = time.monotonic(), 0, threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def count(self) -> int:
        """So far; also one that has ended just now."""
        now = time.monotonic()
        self._count += now - self._last_turn > TURN + _LATE
        self._last_turn = now
        return self._count

    def close(self) -> None:
        """Ends its thread."""
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(TURN):
            self.count()

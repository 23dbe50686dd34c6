"""How far another host's monotonic clock is from this one's, from pings that go to and fro. Pure.

The answer to a ping was made between its sending and its return: the quickest of the newest answers is the most exact,
and it is wrong by half of the time that it took at most (as in NTP, RFC 5905, section 8).
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

KEPT_SECONDS = 15.0
"""Clocks drift: older answers tell nothing."""
MOST_SAMPLES = 64


class _Sample(NamedTuple):
    round_trip: float
    offset: float
    at: float


class HostClock:
    """The newest pings of one host.

    >>> clock = HostClock()
    >>> clock.add(sent=10.0, received=10.5, theirs=110.25)
    >>> clock.offset(10.5), clock.error(10.5)
    (100.0, 0.25)
    """

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque(maxlen=MOST_SAMPLES)

    def add(self, sent: float, received: float, theirs: float) -> None:
        """A ping that came back; ``theirs``: the other host's clock when it answered. All in seconds."""
        if received >= sent:
            self._samples.append(_Sample(received - sent, theirs - (sent + received) / 2, received))

    def offset(self, now: float) -> float | None:
        """Seconds that the other clock is ahead; None where no recent ping came back."""
        best = self._best(now)
        return None if best is None else best.offset

    def error(self, now: float) -> float | None:
        """Seconds that `offset` may be wrong."""
        best = self._best(now)
        return None if best is None else best.round_trip / 2

    def _best(self, now: float) -> _Sample | None:
        while self._samples and now - self._samples[0].at > KEPT_SECONDS:
            self._samples.popleft()
        return min(self._samples, default=None)

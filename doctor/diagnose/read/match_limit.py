"""A limit on the time that a pattern may take for a line: ``(a+)+$``, of a site's signature, would never end."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from doctor.engine.texts import filled

LINE_SECONDS = 1.0
"""Seconds of CPU for one pattern on one line of at most 4,096 characters; what is sound takes microseconds."""


class _TooSlow(Exception):
    pass


class MatchLimit:
    """Searches patterns, each at most `LINE_SECONDS`; one that took longer is not searched again.

    The engine of regular expressions looks for signals while it works, so the timer of the process's CPU time ends it.
    Signals reach the main thread alone: in another one there is no limit.
    """

    def __init__(self) -> None:
        self.slow: dict[re.Pattern[str], str] = {}
        """The patterns that took too long, with their signatures."""
        self._works = self._is_searching = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """While a log is read."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGVTALRM, self._expire)
        self._works = True
        try:
            yield
        finally:
            self._works = False
            signal.signal(signal.SIGVTALRM, before)

    def search(self, signature: str, regex: re.Pattern[str], text: str) -> re.Match[str] | None:
        """The match; None where there is none, or where the pattern takes too long."""
        if regex in self.slow:
            return None
        if not self._works:
            return regex.search(text)
        try:
            self._is_searching = True
            signal.setitimer(signal.ITIMER_VIRTUAL, LINE_SECONDS)
            try:
                return regex.search(text)
            finally:
                self._is_searching = False
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        except _TooSlow:
            self.slow[regex] = signature
            return None

    def notes(self) -> list[str]:
        """A line for each signature with a pattern that took too long."""
        names = sorted(set(self.slow.values()))
        return [
            filled("a pattern of signature {0} took longer than {1} s: it was left out", name, f"{LINE_SECONDS:g}")
            for name in names
        ]

    def _expire(self, number: int, frame: FrameType | None) -> None:
        if self._is_searching:
            raise _TooSlow

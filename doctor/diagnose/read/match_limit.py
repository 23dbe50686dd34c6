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
    """Searches patterns, each at most twice `LINE_SECONDS`; one that takes longer is not searched again.

    The engine of regular expressions looks for signals while it works, so a timer of the process's CPU time ends the
    search that it finds at work twice. Signals reach the main thread alone: in another one there is no limit.
    """

    def __init__(self) -> None:
        self.slow: dict[re.Pattern[str], str] = {}
        """The patterns that took too long, with their signatures."""
        self._is_searching = False
        self._searches = self._seen = 0

    @contextmanager
    def installed(self) -> Iterator[None]:
        """While a log is read."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGVTALRM, self._expire)
        signal.setitimer(signal.ITIMER_VIRTUAL, LINE_SECONDS, LINE_SECONDS)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)

    def search(self, signature: str, regex: re.Pattern[str], text: str) -> re.Match[str] | None:
        """The match; None where there is none, or where the pattern takes too long."""
        if regex in self.slow:
            return None
        self._searches += 1
        try:
            self._is_searching = True
            try:
                return regex.search(text)
            finally:
                self._is_searching = False
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
        if self._is_searching and self._seen == self._searches:
            raise _TooSlow
        self._seen = self._searches

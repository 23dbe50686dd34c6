"""How far a run is, on one line of stderr that leaves no trace."""

from __future__ import annotations

import os
import time
from typing import TextIO

from doctor.engine.language import localized, phrase
from doctor.engine.quantities import bytes_text
from doctor.engine.record import HostRecord
from doctor.engine.secrets import hide_secrets
from doctor.engine.streams import harmless
from doctor.report.layout.formatting import clean, count_noun
from doctor.report.layout.terminal import is_terminal

MIN_WRITE_SECONDS = 0.1
"""Seconds between two writes."""
QUICK_SECONDS = 1.0
"""Seconds in which files are read without a line: it would be gone before anyone reads it."""
_BAR_WIDTH = 24


def stage_words(name: str, seconds: float) -> str:
    """All ranks of the smoke run have finished a stage, so many seconds after its start; without a name it starts.

    Of 0 s: a part of the network test begins.

    >>> stage_words("pairs", 2.31), stage_words("try", 0.0), stage_words("", 0.0)
    ('smoke run: pairs done after 2.3 s', 'network test: try', 'smoke run: starting')
    """
    stage = clean(name, 40)
    if not name:
        return localized("smoke run: starting")
    if not seconds:
        return phrase("network test: {stage}", stage=stage)
    return phrase("smoke run: {stage} done after {seconds} s", stage=stage, seconds=f"{seconds:.1f}")


class ProgressLine:
    """Counts hosts as they answer, or bytes as they are read.

    Writes nothing unless ``stream`` is a terminal that can wipe a line: ``TERM=dumb`` cannot.
    """

    def __init__(self, total: int, stream: TextIO | None, hosts: bool = True) -> None:
        self.total, self.stream = total, stream
        self.answered = self.unreachable = 0
        self.written = 0.0 if hosts else time.monotonic() + QUICK_SECONDS
        self.visible = False
        self.live = total > 0 and stream is not None and is_terminal(stream) and os.environ.get("TERM") != "dumb"
        if hosts:
            self.write()

    def step(self, host: str, record: HostRecord) -> None:
        self.count(not record.visit.failure)

    def count(self, answered: bool) -> None:
        """One more host is done: it answered, or could not be reached."""
        if not answered:
            self.unreachable += 1
        else:
            self.answered += 1
        self.write()

    def write(self) -> None:
        now = time.monotonic()
        if not self.live or (self.visible and now - self.written < MIN_WRITE_SECONDS and self.done < self.total):
            return
        self.written = now
        missed = phrase(", {count} could not be reached", count=self.unreachable) if self.unreachable else ""
        text = phrase("{count} of {hosts} answered", count=self.answered, hosts=count_noun(self.total, "host"))
        self.put(f"\r{text}{missed}\x1b[K")
        self.visible = True

    def stage(self, name: str, seconds: float) -> None:
        """As `stage_words`."""
        if self.live:
            self.put(f"\r{stage_words(name, seconds)}\x1b[K")
            self.visible = True

    def note(self, text: str) -> None:
        if self.live:
            self.put(f"\r{harmless(hide_secrets(clean(text)))}\x1b[K\n")
            self.visible = False
            self.write()

    def read(self, count: int, total: int) -> None:
        """So many bytes of ``total`` were read; of compressed files it is more than there are."""
        now = time.monotonic()
        if not self.live or now - self.written < MIN_WRITE_SECONDS or not total:
            return
        self.written = now
        share = min(count / total, 1.0)
        bar = "#" * round(share * _BAR_WIDTH)
        text = phrase("{share} of {size} read", share=f"{share:4.0%}", size=bytes_text(total))
        self.put(f"\r[{bar:<{_BAR_WIDTH}}] {text}\x1b[K")
        self.visible = True

    @property
    def done(self) -> int:
        return self.answered + self.unreachable

    def put(self, text: str) -> None:
        try:
            assert self.stream is not None
            self.stream.write(text)
            self.stream.flush()
        except (OSError, ValueError):
            self.live = False

    def close(self) -> None:
        """Wipes the line, so that the report begins on a clean one. May be called twice."""
        if self.live and self.visible:
            self.put("\r\x1b[K")
        self.live = False

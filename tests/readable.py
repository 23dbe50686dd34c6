"""Which files can be read: as `select.select`, which fails in a worker that has more than 1,024 open files."""

from __future__ import annotations

import select
from collections.abc import Iterable
from typing import Protocol


class HasFileno(Protocol):
    """A file, a socket or a pipe."""

    def fileno(self) -> int:
        """Its number."""
        ...


def readable(files: Iterable[int | HasFileno], seconds: float | None = None) -> list[int]:
    """The numbers of those that have data or have ended; empty after ``seconds`` without any."""
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    return [number for number, _ in poll.poll(None if seconds is None else max(0.0, seconds) * 1000)]

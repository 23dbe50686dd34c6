"""Logs to a diagnosis: the functions that the command calls."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

import msgspec

from doctor.diagnose.diagnosis import Diagnosis
from doctor.diagnose.fetch.excerpt_reading import collection_notes, read_record, unread_logs
from doctor.diagnose.fetch.saved_logs import LogRecord
from doctor.diagnose.read.readings import read_all
from doctor.diagnose.read.sources import find_sources
from doctor.diagnose.separate_jobs import diagnose_jobs
from doctor.diagnose.signature import Signature
from doctor.engine.texts import filled

MANY, SMALL = 1000, 1 << 14
"""So many files, of so few bytes each on average, are judged in about half the time in which they are read."""


def diagnose_found(
    paths: Sequence[str],
    signatures: Mapping[str, Signature],
    progress: Callable[[int, int], None] | None = None,
    budget: float = 0.0,
) -> Diagnosis:
    """The diagnosis of the logs at these paths. ``progress`` is called with the bytes that were read and all bytes.

    ``budget``: seconds for reading and judging them; 0 is no limit. Judging has a third of it, or a second, whatever
    reading took.

    Raises: InputError (exit code 78) for a path that does not exist.
    """
    until = time.monotonic() + budget if budget else float("inf")
    sources = find_sources(paths, until)
    if len(sources) > MANY and sum(source.size for source in sources) < len(sources) * SMALL:
        until -= budget / 3
    readings = read_all(sources, signatures, progress, until)
    try:
        with _within(max(until - time.monotonic(), budget / 3, _LEAST) if budget else 0.0):
            return diagnose_jobs(readings, signatures)
    except _Passed:
        why = filled("{0} logs: read, but not judged: the time limit of --budget had passed", len(readings))
        return msgspec.structs.replace(diagnose_jobs((), signatures), unread=(why,))


_LEAST = 1.0
"""Seconds for judging."""


class _Passed(BaseException):
    """What is judged takes too long: no ``except`` between keeps it."""


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    """Raises: _Passed after so many seconds, where signals reach this thread; 0: no limit."""

    def end(number: int, frame: FrameType | None) -> None:
        raise _Passed

    if not seconds or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds, 5.0)  # again, where a finalizer swallowed it
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGALRM) is end:  # a signal that ends the program has a timer of its own
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def diagnose_record(record: LogRecord, signatures: Mapping[str, Signature]) -> Diagnosis:
    """The diagnosis of logs that were collected from hosts."""
    unread = unread_logs(record)
    diagnosis = diagnose_jobs(read_record(record, signatures), signatures, unread)
    notes = tuple(collection_notes(record))
    return msgspec.structs.replace(diagnosis, source=record.source, notes=notes, unread=tuple(unread))

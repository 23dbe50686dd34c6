"""Logs to a diagnosis: the functions that the command calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from doctor.diagnose.diagnosis import Diagnosis
from doctor.diagnose.fetch.excerpt_reading import collection_notes, read_record, unread_logs
from doctor.diagnose.fetch.saved_logs import LogRecord
from doctor.diagnose.read.readings import read_all
from doctor.diagnose.read.sources import find_sources
from doctor.diagnose.separate_jobs import diagnose_jobs
from doctor.diagnose.signature import Signature
from doctor.engine.texts import filled
from doctor.engine.time_limit import LEAST_SECONDS, TimePassed, time_limit

MANY, SMALL = 1000, 1 << 14
"""So many files, of so few bytes each on average, are judged in about half the time in which they are read."""


def diagnose_found(
    paths: Sequence[str],
    signatures: Mapping[str, Signature],
    progress: Callable[[int, int], None] | None = None,
    budget: float = 0.0,
) -> Diagnosis:
    """The diagnosis of the logs at these paths. ``progress`` is called with the bytes that were read and all bytes.

    ``budget``: seconds for reading and judging them; 0 is no limit. Judging has a third of it, or a second, even where
    reading took longer than its share.

    Raises: InputError (exit code 78) for a path that does not exist.
    """
    until = time.monotonic() + budget if budget else float("inf")
    sources = find_sources(paths, until)
    if len(sources) > MANY and sum(source.size for source in sources) < len(sources) * SMALL:
        until -= budget / 3
    readings = read_all(sources, signatures, progress, until)
    try:
        with time_limit(max(until - time.monotonic(), budget / 3, LEAST_SECONDS) if budget else 0.0):
            return diagnose_jobs(readings, signatures)
    except TimePassed:
        why = filled("{0} logs: read, but not judged: the time limit of --budget had passed", len(readings))
        return msgspec.structs.replace(diagnose_jobs((), signatures), unread=(why,))


def diagnose_record(record: LogRecord, signatures: Mapping[str, Signature]) -> Diagnosis:
    """The diagnosis of logs that were collected from hosts."""
    unread = unread_logs(record)
    diagnosis = diagnose_jobs(read_record(record, signatures), signatures, unread)
    notes = (*diagnosis.notes, *collection_notes(record))
    return msgspec.structs.replace(diagnosis, source=record.source, notes=notes, unread=tuple(unread))

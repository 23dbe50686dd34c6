"""Reads all logs of a job, on all cores where there is much to read."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from doctor.diagnose.events import FileReading, FileSummary
from doctor.diagnose.read.flight_recorder import NoRecordingError, may_be_recording, read_recording
from doctor.diagnose.read.matcher import Matcher
from doctor.diagnose.read.scan import scan
from doctor.diagnose.read.sources import Source, streams
from doctor.diagnose.signature import Signature
from doctor.engine.sanitize import printable

PARALLEL_BYTES = 64 << 20
"""Bytes in all above which several processes read."""
MAX_EVENTS = 400_000
"""Events of all files together; of the files after that, only summaries are kept."""
MAX_NAME = 1000
"""Characters of a shown path. Whoever packs an archive chooses the names in it."""
_PROBE = 4096
"""Bytes by which text is told from binary data."""

_matcher: Matcher | None = None
"""Of a worker process, made once."""


def read_all(sources: Sequence[Source], signatures: Mapping[str, Signature]) -> list[FileReading]:
    """Every log of the sources. What cannot be read is noted at its file."""
    large = sum(source.size for source in sources) > PARALLEL_BYTES and len(sources) > 1
    workers = min(len(os.sched_getaffinity(0)), len(sources)) if large else 1
    readings = _read_parallel(sources, signatures, workers) if workers > 1 else _read_serial(sources, signatures)
    return _bounded(readings)


def _read_serial(sources: Sequence[Source], signatures: Mapping[str, Signature]) -> Iterator[FileReading]:
    matcher = Matcher(signatures.values())
    for source in sources:
        yield from read_source(source, matcher)


def _read_parallel(
    sources: Sequence[Source], signatures: Mapping[str, Signature], workers: int
) -> Iterator[FileReading]:
    from concurrent.futures import ProcessPoolExecutor

    by_size = sorted(sources, key=lambda source: -source.size)
    with ProcessPoolExecutor(workers, initializer=_start_worker, initargs=(tuple(signatures.values()),)) as pool:
        for readings in pool.map(_read_in_worker, by_size):
            yield from readings


def _start_worker(signatures: Sequence[Signature]) -> None:
    global _matcher
    _matcher = Matcher(signatures)


def _read_in_worker(source: Source) -> list[FileReading]:
    assert _matcher is not None
    return list(read_source(source, _matcher))


def read_source(source: Source, matcher: Matcher) -> Iterator[FileReading]:
    """The logs of one source: itself, or the members of an archive."""
    year = time.gmtime(source.modified or time.time()).tm_year
    for path, blocks, notes in streams(source):
        name = printable(path, MAX_NAME)
        first = next(blocks, b"")
        if may_be_recording(first):
            yield _recording(name, _chained(first, blocks), notes)
            continue
        if _is_binary(first):
            yield FileReading(FileSummary(name=name, bytes=len(first), notes=["is no text: it was not read"]), [])
            continue
        reading = scan(name, _chained(first, blocks), matcher, file=0, year=year)
        reading.summary.notes += notes
        yield reading


def _recording(name: str, blocks: Iterable[bytes], notes: list[str]) -> FileReading:
    summary = FileSummary(name=name, notes=notes)
    try:
        recording = read_recording(_counted(blocks, summary))
    except NoRecordingError as error:
        summary.notes.append(str(error))
        return FileReading(summary, [])
    summary.lines = sum(len(group.collectives) for group in recording.groups)
    return FileReading(summary, [], recording)


def _counted(blocks: Iterable[bytes], summary: FileSummary) -> Iterator[bytes]:
    for block in blocks:
        summary.bytes += len(block)
        yield block


def _chained(first: bytes, rest: Iterable[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest


def _is_binary(block: bytes) -> bool:
    """More than one byte in thirty is NUL; those at the beginning are what a truncated file keeps, and do not count."""
    probe = block.lstrip(b"\0")[:_PROBE]
    return probe.count(b"\0") * 30 > len(probe)


def _bounded(readings: Iterable[FileReading]) -> list[FileReading]:
    kept: list[FileReading] = []
    total = 0
    for reading in readings:
        total += len(reading.events)
        if total > MAX_EVENTS:
            reading = FileReading(reading.summary, [])
            reading.summary.notes.append(f"more than {MAX_EVENTS} events in all: those of this file were left out")
        kept.append(reading)
    return kept

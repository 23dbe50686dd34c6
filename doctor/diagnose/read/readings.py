"""Reads all logs of a job, on all cores where there is much to read."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from doctor.diagnose.events import TIME_ENDED, FileReading, FileSummary, counted
from doctor.diagnose.excerpter.excerpt import size_change
from doctor.diagnose.excerpter.file_blocks import utf8_blocks
from doctor.diagnose.excerpter.line_choice import is_binary, is_recording
from doctor.diagnose.read.accounting import MAX_BYTES, is_accounting, read_rows
from doctor.diagnose.read.flight_recorder import NoRecordingError, read_recording
from doctor.diagnose.read.matcher import Matcher
from doctor.diagnose.read.scan import scan
from doctor.diagnose.read.sources import Source, streams
from doctor.diagnose.signature import Signature
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.transport.program import filled_here

PARALLEL_BYTES = 64 << 20
"""Bytes in all above which several processes read."""
MAX_EVENTS = 400_000
"""Events of all files together; of the files after that, only summaries are kept."""
MAX_UNREAD = 1000
"""Files that the time limit left unread and that have a summary of their own; the others share one."""
MAX_NAME = 1000
"""Characters of a shown path. Whoever packs an archive chooses the names in it."""
_PACKED = (
    (b"\x28\xb5\x2f\xfd", "is compressed by zstd: it was not read; unpack it with zstd -d"),
    (b"\x04\x22\x4d\x18", "is compressed by lz4: it was not read; unpack it with lz4 -d"),
    (b"7z\xbc\xaf\x27\x1c", "is an archive of 7-Zip: it was not read; unpack it"),
)
"""How files begin that are compressed in a way that Python's standard library of 3.10 cannot read."""
_MAGIC = tuple(magic for magic, _ in _PACKED)
_matcher: Matcher | None = None
_until = float("inf")
"""Of a worker process, set once."""


Progress = Callable[[int, int], None]
"""Called with the bytes that were read, and all bytes."""


def read_all(
    sources: Sequence[Source],
    signatures: Mapping[str, Signature],
    progress: Progress | None = None,
    until: float = float("inf"),
) -> list[FileReading]:
    """Every log of the sources. What cannot be read, or not until ``until`` (monotonic clock), is noted at its file."""
    count = _Count(sum(source.size for source in sources), progress)
    large = sum(source.size for source in sources) > PARALLEL_BYTES and len(sources) > 1
    workers = min(len(os.sched_getaffinity(0)), len(sources)) if large else 1
    if workers > 1:
        return _bounded(_read_parallel(sources, signatures, workers, count, until))
    return _bounded(_read_serial(sources, signatures, count, until))


class _Count:
    """Bytes that were read, and who wants to know."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self.total, self.read, self.progress = total, 0, progress
        self.add(0)

    def add(self, count: int) -> None:
        self.read += count
        if self.progress:
            self.progress(self.read, self.total)

    def counted(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        for block in blocks:
            self.add(len(block))
            yield block


def _read_serial(
    sources: Sequence[Source], signatures: Mapping[str, Signature], count: _Count, until: float
) -> Iterator[FileReading]:
    matcher = Matcher(signatures.values())
    for source in sources:
        yield from read_source(source, matcher, count, until)


def _read_parallel(
    sources: Sequence[Source], signatures: Mapping[str, Signature], workers: int, count: _Count, until: float
) -> Iterator[FileReading]:
    from concurrent.futures import ProcessPoolExecutor

    by_size = sorted(sources, key=lambda source: -source.size)
    arguments = (tuple(signatures.values()), until)
    with ProcessPoolExecutor(workers, initializer=_start_worker, initargs=arguments) as pool:
        for source, readings in zip(by_size, pool.map(_read_in_worker, by_size), strict=True):
            count.add(source.size)
            yield from readings


def _start_worker(signatures: Sequence[Signature], until: float) -> None:
    global _matcher, _until
    _matcher, _until = Matcher(signatures), until


def _read_in_worker(source: Source) -> list[FileReading]:
    assert _matcher is not None
    return list(read_source(source, _matcher, until=_until))


def read_source(
    source: Source, matcher: Matcher, count: _Count | None = None, until: float = float("inf")
) -> Iterator[FileReading]:
    """The logs of one source: itself, or the members of an archive."""
    if time.monotonic() > until and source.path != "-":
        summary = FileSummary(name=printable(source.path, MAX_NAME), notes=[TIME_ENDED], incomplete=True)
        yield FileReading(summary, [])
        return
    year = time.gmtime(source.modified or time.time()).tm_year
    for path, blocks, notes in streams(source, until):
        name = printable(path, MAX_NAME)
        blocks = utf8_blocks(blocks)  # type: ignore[no-untyped-call]
        first = next(blocks, b"")
        if is_recording(first):  # type: ignore[no-untyped-call]
            yield read_dump(name, _chained(first, blocks), notes)
            continue
        if is_binary(first) or first.startswith(_MAGIC):  # type: ignore[no-untyped-call]
            note = next((text for magic, text in _PACKED if first.startswith(magic)), "is no text: it was not read")
            yield FileReading(FileSummary(name=name, bytes=len(first), notes=[note], incomplete=True), [])
            continue
        chained = _chained(first, blocks)
        if is_accounting(first):
            reading = read_accounting(name, chained, matcher, year)
        else:
            reading = scan(name, count.counted(chained) if count else chained, matcher, file=0, year=year)
        growth, is_lost = _change_while_read(source) if path == source.path != "-" else ("", False)
        reading.summary.notes += [*notes, *([growth] if growth else [])]
        reading.summary.incomplete = bool(notes) or is_lost
        yield reading


def _change_while_read(source: Source) -> tuple[str, bool]:
    """A note on a file that has grown or lost bytes since it was found, and whether some of it may be lost."""
    try:
        note, shrank = size_change(source.size, os.stat(source.path).st_size)  # type: ignore[no-untyped-call]
        return filled_here(note), shrank
    except OSError:
        return "was removed while it was read", False


def read_accounting(name: str, blocks: Iterable[bytes], matcher: Matcher, year: int) -> FileReading:
    """Saved output of sacct, and any other lines in the file."""
    data, rest = b"", iter(blocks)
    while len(data) <= MAX_BYTES and (block := next(rest, b"")):
        data += block
    reading = scan(name, _chained(data, rest), matcher, file=0, year=year)
    if reading.summary.bytes > MAX_BYTES:
        reading.summary.notes.append(
            filled("is output of sacct of more than {0} MiB: its columns were not read", MAX_BYTES >> 20)
        )
        return reading
    rows = read_rows(data, matcher)
    is_json = data.lstrip().startswith(b"{")
    others = [event for event in reading.events if not is_json and not event.signature.startswith("slurm-job-")]
    reading.events[:] = sorted([*rows, *others], key=lambda event: event.line)
    reading.summary.accounting = not others
    return reading


def read_dump(name: str, blocks: Iterable[bytes], notes: list[str]) -> FileReading:
    """A dump of a flight recorder; what cannot be read of it is noted."""
    summary = FileSummary(name=name, notes=notes)
    try:
        recording = read_recording(counted(blocks, summary))
    except NoRecordingError as error:
        summary.notes.append(str(error))
        return FileReading(summary, [])
    summary.lines = sum(len(group.collectives) for group in recording.groups)
    return FileReading(summary, [], recording)


def _chained(first: bytes, rest: Iterable[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest


def _bounded(readings: Iterable[FileReading]) -> list[FileReading]:
    kept: list[FileReading] = []
    total = unread = 0
    for reading in readings:
        if reading.summary.notes == [TIME_ENDED] and not reading.summary.bytes:
            unread += 1
            if unread > MAX_UNREAD:
                continue
        total += len(reading.events)
        if total > MAX_EVENTS:
            reading = FileReading(reading.summary, [], reading.recording)
            reading.summary.notes.append(
                filled("more than {0} events in all: those of this file were left out", MAX_EVENTS)
            )
        kept.append(reading)
    if unread > MAX_UNREAD:
        name = filled("{0} more files", unread - MAX_UNREAD)
        kept.append(FileReading(FileSummary(name=name, notes=[TIME_ENDED], incomplete=True), []))
    return kept

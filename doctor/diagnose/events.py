"""What is read from log files: events, their files, the processes that wrote them, and recorders' dumps."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

import msgspec

MAX_TEXT = 400
"""Characters of a line that are kept as evidence."""
FOLDED = "log-lines-folded"
"""The signature of lines like the one that tells of them."""
TIME_ENDED = "was not read to its end: the time limit of --budget had passed"
"""The note of a file."""


class Event(msgspec.Struct, frozen=True):
    """A line that matched a signature."""

    signature: str
    file: int
    """Index into the files of the diagnosis."""
    line: int
    """Line number in the file, from 1."""
    text: str
    """The line, printable, at most `MAX_TEXT` characters."""
    values: dict[str, str]
    """Named groups of the pattern; `doctor.diagnose.signature.Signature` lists the names with a meaning."""
    time: float | None = None
    """Seconds since 1970, read as if the host's local time were UTC; None where the line shows no time."""
    inferred_time: bool = False
    """True where the time is that of an earlier line of the same file."""
    pid: str = ""
    rank: int | None = None
    """The rank in the world, where the line itself shows it."""
    local_rank: int | None = None
    device: int | None = None
    host: str = ""


class FileSummary(msgspec.Struct):
    """One file as it was read."""

    name: str
    """As shown: the path as named, with ``!member`` for a member of an archive."""
    bytes: int = 0
    lines: int = 0
    first_time: float | None = None
    last_time: float | None = None
    notes: list[str] = []
    """What could not be read as it stands: bytes that are not text, long lines, truncation."""
    labels: tuple[int, ...] = ()
    """Ranks that labels of a launcher (``srun --label``, ``mpirun --tag-output``) show at most lines."""
    first_line: int = 0
    last_line: int = 0
    """The lines that count, where another attempt or job has the others; 0: all."""
    rank: int | None = None
    device: int | None = None
    host: str = ""
    pid: str = ""
    """Rank, device, host and process id that the file's own name shows."""
    origin: str = ""
    """The host that it was read on; empty where that is not known."""
    kernel: bool = False
    """It holds the messages of the kernel of ``origin``."""
    accounting: bool = False
    """It is what a scheduler says of jobs, and the log of no process."""
    incomplete: bool = False
    """Some of it was not read: that it shows no error means nothing."""


class FileReading(msgspec.Struct):
    """A file's summary and its events, in the order of lines."""

    summary: FileSummary
    events: list[Event]
    recording: Recording | None = None
    """Where the file is a dump of a flight recorder."""


def counted(blocks: Iterable[bytes], summary: FileSummary) -> Iterator[bytes]:
    """The blocks of one file, whose summary says how many bytes of it were read."""
    for block in blocks:
        summary.bytes += len(block)
        yield block


def small_number(text: str, limit: int = 1_000_000_000) -> int | None:
    """A number of a log, which may have any length and any digits; None where it is no number or above ``limit``.

    >>> small_number("12"), small_number("9" * 4000), small_number("--1")
    (12, None, None)
    """
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text)
    if not digits.isdecimal() or len(digits) > 18 or int(digits) > limit:
        return None
    return sign * int(digits)


def shown_timeouts(events: Iterable[Event]) -> dict[str, float]:
    """The timeouts that most processes show."""
    counts_by_variable: dict[str, Counter[float]] = defaultdict(Counter)
    for event in events:
        variable, seconds = event.values.get("variable", ""), event.values.get("timeout_s", "")
        if variable and seconds.isdecimal():
            counts_by_variable[variable][float(seconds)] += 1
    return {variable: counts.most_common(1)[0][0] for variable, counts in counts_by_variable.items()}


class RecordedCollective(msgspec.Struct, frozen=True):
    """One collective of one rank."""

    sequence: int
    """Its number in the process group, from 1."""
    operation: str
    """Without the backend: ``all_reduce``."""
    sizes: str
    """Of inputs and outputs, as far as they must be equal on all ranks; empty where they may differ."""
    ended: bool


class RecordedGroup(msgspec.Struct):
    """One process group, as one rank saw it."""

    name: str
    ranks: list[int]
    """Ranks in the world; empty where the dump does not name them."""
    enqueued: int
    """The number of the last collective that this rank entered."""
    collectives: dict[int, RecordedCollective]


class Recording(msgspec.Struct):
    """The dump of one rank; which rank, only the file's name shows."""

    groups: list[RecordedGroup]


def first_of_each(events: Iterable[Event]) -> list[Event]:
    """Of each signature the first event, and of those without a time of their own one of each of two files."""
    timed: dict[str, Event] = {}
    untimed: dict[str, dict[int, Event]] = defaultdict(dict)
    for event in events:
        if event.time is None or event.inferred_time:
            if len(untimed[event.signature]) < 2:
                untimed[event.signature].setdefault(event.file, event)
        elif event.time < (timed.get(event.signature, event).time or 0.0) or event.signature not in timed:
            timed[event.signature] = event
    return [*timed.values(), *(event for by_file in untimed.values() for event in by_file.values())]

"""One stream of log lines to events, in constant memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from doctor.diagnose.events import MAX_TEXT, Event, FileReading, FileSummary
from doctor.diagnose.read.matcher import MAX_LINE, Candidate, Matcher
from doctor.diagnose.read.stamps import read_stamp
from doctor.engine.sanitize import strip_control_chars

MAX_EVENTS = 4000
"""Events of one file."""
MAX_REPEATS = 60
"""Events of one signature and one process in one file; the later ones only count."""
_LOOK_BACK = 200
"""Lines before an event in which its time is looked for."""
_TRACEBACK_LINES = 400
"""Lines of one traceback."""
_EXCEPTION = re.compile(
    r"^(?:\[(?:rank|default)?\d+\]:?)?\s?(?P<exception>[A-Za-z_][\w.]{0,120})(?:: (?P<message>.*))?$"
)
_QUIET_HEADS = (b"[INFO]", b"[DEBUG]", b"[EVENT]", b"[TRACE]")
"""How lines of CANN and MindSpore begin that report no error."""
_LOUD = re.compile(rb"\n(?!\n|\[(?:INFO|DEBUG|EVENT|TRACE)\])")
_PREFIX = re.compile(
    r"^(?:\[[\w@,.-]{1,80}\](?:<std(?:out|err)>)?:? ?|\d{1,6}: )?"
    r"(?:\([\w .,=:<>-]{1,80}\) )?"
    r"(?:(?:ERROR|CRITICAL) \d\d-\d\d (?P<clock>\d\d:\d\d:\d\d) \[[\w./-]{1,80}:\d{1,6}\] ?)?"
)
"""Labels of ranks and actors, and the head that vLLM prints before each line of a traceback."""
_ESCAPES = re.compile(rb"\x1b\[[0-9;]{0,20}[A-Za-z]")
"""Colors of a terminal, as ray prints them around the labels of its actors."""
_WORLD_RANK = re.compile(r"\[rank(\d{1,6})\]:")
"""torch's label of the rank in the world; a rank further on in the line is that of a process group."""
_WRAPPERS = frozenset(
    {
        "SystemExit",
        "KeyboardInterrupt",
        "ChildFailedError",
        "ProcessRaisedException",
        "ProcessExitedException",
        "SignalException",
        "CalledProcessError",
        "GeneratorExit",
        "BrokenProcessPool",
    }
)
"""Exceptions that only report that another process failed, or that this one was ended."""
TRACEBACK = "program-failed"
"""The signature of a traceback; its event is the exception's line."""


def scan(name: str, blocks: Iterable[bytes], matcher: Matcher, *, file: int, year: int) -> FileReading:
    """Reads the blocks of one file. ``year`` is taken for lines that show none; ``file`` numbers the events."""
    return _Scanner(name, matcher, file, year).read(blocks)


class _Scanner:
    def __init__(self, name: str, matcher: Matcher, file: int, year: int) -> None:
        self.matcher, self.file, self.year = matcher, file, year
        self.summary = FileSummary(name=name, notes=[])
        self.events: list[Event] = []
        self.repeats: dict[tuple[str, str, int | None], int] = {}
        self.tracebacks: dict[str, int] = {}
        """Lines left of the open traceback of each prefix, such as ``[rank3]:``."""
        self.long_lines = self.not_text = 0
        self.last_block_lines: list[bytes] = []

    def read(self, blocks: Iterable[bytes]) -> FileReading:
        tail = b""
        for data in _whole_lines(blocks, self.summary):
            self._read_block(data)
            if not self.summary.lines:
                self.summary.labels = _labels(data)
            self.summary.lines += data.count(b"\n")
            tail = data
        self.summary.last_time = self._nearest_time(tail, len(tail))
        self._note_counts()
        return FileReading(self.summary, self.events)

    def _note_counts(self) -> None:
        for count, note in (
            (self.long_lines, f"lines are longer than {MAX_LINE} bytes: only their beginning was read"),
            (self.not_text, "lines hold bytes that are neither UTF-8 nor GBK"),
            (sum(max(0, count - MAX_REPEATS) for count in self.repeats.values()), "repeated events were only counted"),
        ):
            if count:
                self.summary.notes.append(f"{count} {note}")

    def _read_block(self, data: bytes) -> None:
        """Reads the lines of a block, each of which ends with a newline, that can be an event."""
        if self.summary.first_time is None:
            self.summary.first_time = self._first_time(data)
        starts = _line_starts(data, self.matcher.quiet_literals)
        if not starts:
            return
        heads = self.matcher.number_heads(data)
        candidates = self.matcher.candidates
        number, counted = self.summary.lines, 0
        for start in starts:
            end = data.index(b"\n", start)
            line = data[start:end]
            if b"\x1b" in line:
                line = _ESCAPES.sub(b"", line)
            if len(line) > MAX_LINE:
                self.long_lines += 1
                line = line[:MAX_LINE]
            selected = candidates(line)
            for head in heads:
                if head in line:
                    selected += self.matcher.numbered(line, heads)
                    break
            if selected or self.tracebacks:
                number += data.count(b"\n", counted, start)
                counted = start
                self._read_line(_Line(data, start, end, number + 1), line, selected)

    def _read_line(self, place: _Line, line: bytes, selected: tuple[Candidate, ...]) -> None:
        text = self._decode(line)
        matched = dict(_matches(text, selected))
        opened = matched.pop(TRACEBACK, None)
        if self.tracebacks:
            self._continue_traceback(text, matched)
        if opened is not None:
            self.tracebacks[_stream(_prefix(text))] = _TRACEBACK_LINES
        for signature, values in matched.items():
            self._add(signature, values, text, place)

    def _continue_traceback(self, text: str, matched: dict[str, dict[str, str]]) -> None:
        """Finds the exception's line of an open traceback: the first that is neither indented nor empty."""
        prefix = _prefix(text)
        stream = _stream(prefix)
        if stream not in self.tracebacks:
            return
        self.tracebacks[stream] -= 1
        rest = text[len(prefix) :]
        if self.tracebacks[stream] <= 0:
            del self.tracebacks[stream]
            return
        if not rest.strip() or rest.startswith((" ", "\t", "Traceback (most recent")):
            return
        exception = _EXCEPTION.match(rest)
        if not exception:
            return
        del self.tracebacks[stream]
        if not matched:
            values = {key: value for key, value in exception.groupdict().items() if value}
            if values.get("exception", "").rpartition(".")[2] in _WRAPPERS:
                return
            matched[TRACEBACK] = values

    def _add(self, signature: str, values: dict[str, str], text: str, place: _Line) -> None:
        stamp = read_stamp(text, self.year)
        key = (signature, stamp.pid, stamp.rank)
        self.repeats[key] = self.repeats.get(key, 0) + 1
        if self.repeats[key] > MAX_REPEATS or len(self.events) >= MAX_EVENTS:
            return
        time = stamp.time
        inferred = time is None
        world = _WORLD_RANK.search(text[:MAX_TEXT])
        if inferred:
            time = self._nearest_time(place.data, place.end)
        self.events.append(
            Event(
                signature=signature,
                file=self.file,
                line=place.number,
                text=strip_control_chars(text, MAX_TEXT),
                values={name: strip_control_chars(value, 200) for name, value in values.items()},
                time=time,
                inferred_time=inferred,
                pid=values.get("pid") or stamp.pid,
                rank=int(world[1]) if world else _number(values, "rank", stamp.rank),
                local_rank=_number(values, "local_rank", stamp.local_rank),
                device=_number(values, "device", stamp.device),
                host=values.get("host") or stamp.host,
            )
        )

    def _nearest_time(self, data: bytes, end: int) -> float | None:
        """The time of the last line before ``end`` that shows one."""
        lines = data[max(0, end - _LOOK_BACK * 200) : end].split(b"\n")
        for line in reversed(lines[-_LOOK_BACK:]):
            if line:
                time = read_stamp(line[:400].decode("utf-8", "replace"), self.year).time
                if time is not None:
                    return time
        return None

    def _first_time(self, data: bytes) -> float | None:
        lines = data[: _LOOK_BACK * 200].split(b"\n")[:_LOOK_BACK]
        stamps = (read_stamp(line[:400].decode("utf-8", "replace"), self.year).time for line in lines)
        return next((time for time in stamps if time is not None), None)

    def _decode(self, line: bytes) -> str:
        try:
            return line.decode()
        except UnicodeDecodeError:
            pass
        try:
            return line.decode("gb18030")
        except UnicodeDecodeError:
            self.not_text += 1
            return line.decode("utf-8", "replace")


_LABEL = re.compile(rb"^(?:(\d{1,6}): |\[\d{1,10},(\d{1,6})\](?:<std(?:out|err)>)?:)", re.MULTILINE)


def _labels(data: bytes) -> tuple[int, ...]:
    """The ranks with which srun or mpirun label each line; none where fewer than half of the lines have a label."""
    matches = _LABEL.findall(data[:_LABEL_BYTES])
    if 2 * len(matches) < data.count(b"\n", 0, _LABEL_BYTES):
        return ()
    return tuple(sorted({int(srun or mpi) for srun, mpi in matches}))


_LABEL_BYTES = 1 << 20
"""Bytes at the beginning of a file in which labels are looked for."""


def _number(values: dict[str, str], name: str, otherwise: int | None) -> int | None:
    """A number that the signature reads from the text, which outranks the head of the line."""
    word = values.get(name, "")
    return int(word) if word.isdecimal() and len(word) < 8 else otherwise


def _matches(text: str, candidates: tuple[Candidate, ...]) -> Iterator[tuple[str, dict[str, str]]]:
    """Signatures that the line matches, with the values of all of their patterns that match."""
    values_by_id: dict[str, dict[str, str]] = {}
    for signature, pattern in candidates:
        if pattern.literal not in text:
            continue
        selected = pattern.regex.search(text)
        if selected:
            values = values_by_id.setdefault(signature.id, {})
            values.update((name, value) for name, value in selected.groupdict().items() if value is not None)
    yield from values_by_id.items()


def _prefix(text: str) -> str:
    """The label of a rank before the line, with which launchers tell the output of ranks apart."""
    selected = _PREFIX.match(text)
    return selected[0] if selected else ""


def _stream(prefix: str) -> str:
    """What stays the same in the prefix of all lines of one traceback."""
    selected = _PREFIX.match(prefix)
    return prefix.replace(selected["clock"], "", 1) if selected and selected["clock"] else prefix


class _Line(NamedTuple):
    """Where a line stands in its block."""

    data: bytes
    start: int
    end: int
    number: int


def _line_starts(data: bytes, quiet_literals: Iterable[bytes]) -> list[int]:
    """Where lines begin that can be an event: those that are not at INFO level, and those with a quiet literal."""
    starts = [match.end() for match in _LOUD.finditer(data)]
    if starts and starts[-1] == len(data):
        starts.pop()
    if not data.startswith(_QUIET_HEADS):
        starts.insert(0, 0)
    quiet = set()
    for literal in quiet_literals:
        at = data.find(literal)
        while at >= 0:
            quiet.add(data.rfind(b"\n", 0, at) + 1)
            at = data.find(literal, data.index(b"\n", at))
    return sorted(quiet.union(starts)) if quiet else starts


def _whole_lines(blocks: Iterable[bytes], summary: FileSummary) -> Iterator[bytes]:
    """The blocks, cut after their last newline. The rest of a line that is longer than `MAX_LINE` is dropped."""
    rest = b""
    for block in blocks:
        summary.bytes += len(block)
        end = block.rfind(b"\n") + 1
        if end:
            yield rest + block[:end]
            rest = block[end:]
        else:
            rest += block
        if len(rest) > 4 * MAX_LINE:
            rest = rest[: MAX_LINE + 1]
    if rest:
        yield rest + b"\n"

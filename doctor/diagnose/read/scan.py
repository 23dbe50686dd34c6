"""One stream of log lines to events, in constant memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

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
_PREFIX = re.compile(r"^(?:\[[\w@,.-]{1,80}\](?:<std(?:out|err)>)?:? ?|\d{1,6}: )")
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
        for lines, block in _split(blocks, self.summary):
            self._read_lines(lines, block)
            self.summary.lines += len(lines)
            self.last_block_lines = lines or self.last_block_lines
        self.summary.last_time = self._nearest_time(self.last_block_lines, len(self.last_block_lines) - 1)
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

    def _read_lines(self, lines: list[bytes], block: bytes) -> None:
        if self.summary.first_time is None:
            self.summary.first_time = self._first_time(lines)
        heads = self.matcher.number_heads(block)
        candidates = self.matcher.candidates
        for index, line in enumerate(lines):
            if len(line) > MAX_LINE:
                self.long_lines += 1
                line = line[:MAX_LINE]
            selected = candidates(line)
            for head in heads:
                if head in line:
                    selected += self.matcher.numbered(line, heads)
                    break
            if selected or self.tracebacks:
                self._read_line(lines, index, line, selected)

    def _read_line(self, lines: list[bytes], index: int, line: bytes, selected: tuple[Candidate, ...]) -> None:
        text = self._decode(line)
        matched = dict(_matches(text, selected))
        opened = matched.pop(TRACEBACK, None)
        if self.tracebacks:
            self._continue_traceback(lines, index, text, matched)
        if opened is not None:
            prefix = _prefix(text)
            self.tracebacks[prefix] = _TRACEBACK_LINES
        for signature, values in matched.items():
            self._add(signature, values, text, lines, index)

    def _continue_traceback(
        self, lines: list[bytes], index: int, text: str, matched: dict[str, dict[str, str]]
    ) -> None:
        """Finds the exception's line of an open traceback: the first that is neither indented nor empty."""
        prefix = _prefix(text)
        if prefix not in self.tracebacks:
            return
        self.tracebacks[prefix] -= 1
        rest = text[len(prefix) :]
        if self.tracebacks[prefix] <= 0:
            del self.tracebacks[prefix]
            return
        if not rest.strip() or rest.startswith((" ", "\t", "Traceback (most recent")):
            return
        exception = _EXCEPTION.match(rest)
        if not exception:
            return
        del self.tracebacks[prefix]
        if not matched:
            values = {key: value for key, value in exception.groupdict().items() if value}
            if values.get("exception", "").rpartition(".")[2] in _WRAPPERS:
                return
            matched[TRACEBACK] = values

    def _add(self, signature: str, values: dict[str, str], text: str, lines: list[bytes], index: int) -> None:
        stamp = read_stamp(text, self.year)
        key = (signature, stamp.pid, stamp.rank)
        self.repeats[key] = self.repeats.get(key, 0) + 1
        if self.repeats[key] > MAX_REPEATS or len(self.events) >= MAX_EVENTS:
            return
        time = stamp.time
        inferred = time is None
        if inferred:
            time = self._nearest_time(lines, index)
        self.events.append(
            Event(
                signature=signature,
                file=self.file,
                line=self.summary.lines + index + 1,
                text=strip_control_chars(text, MAX_TEXT),
                values={name: strip_control_chars(value, 200) for name, value in values.items()},
                time=time,
                inferred_time=inferred,
                pid=values.get("pid") or stamp.pid,
                rank=_number(values, "rank", stamp.rank),
                local_rank=_number(values, "local_rank", stamp.local_rank),
                device=_number(values, "device", stamp.device),
                host=values.get("host") or stamp.host,
            )
        )

    def _nearest_time(self, lines: list[bytes], index: int) -> float | None:
        """The time of the nearest line at or before ``index`` that shows one."""
        for line in reversed(lines[max(0, index - _LOOK_BACK) : index + 1]):
            if line:
                time = read_stamp(line[:400].decode("utf-8", "replace"), self.year).time
                if time is not None:
                    return time
        return None

    def _first_time(self, lines: list[bytes]) -> float | None:
        stamps = (read_stamp(line[:400].decode("utf-8", "replace"), self.year).time for line in lines[:_LOOK_BACK])
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


def _split(blocks: Iterable[bytes], summary: FileSummary) -> Iterator[tuple[list[bytes], bytes]]:
    """Whole lines of each block; the rest of a line that is longer than `MAX_LINE` is dropped."""
    rest = b""
    for block in blocks:
        summary.bytes += len(block)
        data = rest + block
        lines = data.split(b"\n")
        rest = lines.pop()
        if len(rest) > 4 * MAX_LINE:
            rest = rest[: MAX_LINE + 1]
        if lines:
            yield lines, data
    if rest:
        yield [rest], rest

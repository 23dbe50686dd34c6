"""One stream of log lines to events, in constant memory."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable
from itertools import compress
from typing import NamedTuple

from doctor.diagnose.events import FOLDED, MAX_TEXT, Event, FileReading, FileSummary, counted
from doctor.diagnose.excerpter.line_choice import (
    CTIME,
    MAX_LINE,
    has_long_line,
    launcher_labels,
    lines_of,
    shapes_of,
    shown_part,
    whole_lines,
)
from doctor.diagnose.excerpter.tracebacks import (
    BELOW,
    EXCEPTION,
    HEADLESS_LINES,
    RAY_ORIGIN,
    OpenTracebacks,
    head_at,
    label_before_head,
)
from doctor.diagnose.read import quoted_exceptions as quotes
from doctor.diagnose.read.matcher import Candidate, Matcher, OfShapes, StepsBehind
from doctor.diagnose.read.quoted_exceptions import OF_OTHERS, QUOTED, continued, is_error, raised, thrown
from doctor.diagnose.read.stamps import (
    KUBELET,
    LOOK_BACK,
    TimesAbove,
    first_time,
    kubelet_time,
    read_stamp,
    silence_before,
    stamp_of_message,
    world_rank,
)
from doctor.engine.sanitize import count_noun, strip_control_chars
from doctor.engine.texts import filled

MAX_EVENTS = 4000
"""Events of one file."""
MAX_REPEATS = 60
"""Events of one signature and one process in one file; the later ones only count."""
_UNSHOWN = {
    b"\x1b": re.compile(rb"\x1b\[[0-9;]{0,20}[A-Za-z]"),
    b"]<std": re.compile(rb"(?<=[^\n])(?:%s|(?<!:\d\d \d{4}))\[\d{1,6},\d{1,6}\]<std(?:err|out)>:" % CTIME.encode()),
}
"""Colors of a terminal, as ray prints them around its labels, and mpirun's label before each later part of a line."""
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
        "WorkerGroupError",
        "TrainingFailedError",
    }
)
"""Exceptions that only report that another process failed, or that this one was ended."""
TRACEBACK = "program-failed"
"""The signature of a traceback; its event is the exception's line."""
UNFINISHED, CHILD_FAILED = "traceback-cut", "child-process-failed"
"""The signatures of a log that shows no fault, and ends within a traceback, or with an exception over a process."""
UNKNOWN = "error-unknown"
_ABORTED, _NCCL_FAILED, _CANN_CODE = "process-aborted", "nccl-invalid-usage", "cann-error-code"
_RAY_REPEATED = "x across cluster]"
"""In a line that ray's driver kept back for some seconds, and prints behind later ones."""
_BAR = re.compile(r"^.{0,400}(?:it/s|s/it)[^\]]{0,80}\]")
"""A progress bar, behind which a process that ends prints in the same line."""
_LAST_LINES = 25
"""Of a log: those in which its last error is looked for."""
_ENDED = frozenset({"SystemExit", "KeyboardInterrupt", "SignalException", "GeneratorExit"})
"""Of the wrappers, those with which a process is ended."""
_UNREAD = frozenset({"_pickle.UnpicklingError", "EOFError"})
"""What a process raises whose parent ended while it sent the child what to do: multiprocessing.spawn."""
_EXCEPTIONS = frozenset({TRACEBACK, "python-exception"})
_BLOCK = re.compile(
    r" host      : (?P<host>[\w.-]{1,200})\n.{0,80} rank      : (?P<rank>\d{1,9}) .{0,40}\n"
    r".{0,120}\(pid: (?P<pid>\d{1,10})\)"
)
"""Before the traceback of a worker that torchrun quotes in its list of failures: whose it is."""


def scan(name: str, blocks: Iterable[bytes], matcher: Matcher, *, file: int, year: int) -> FileReading:
    """Reads the blocks of one file. ``year`` is taken for lines that show none; ``file`` numbers the events."""
    with matcher.limit.installed():
        return _Scanner(name, matcher, file, year).read(blocks)


class _Scanner:
    def __init__(self, name: str, matcher: Matcher, file: int, year: int) -> None:
        self.matcher, self.file, self.year = matcher, file, year
        self.summary = FileSummary(name=name, notes=[])
        self.events: list[Event] = []
        self.repeats: dict[tuple[str, str, int | None], int] = {}
        self.tracebacks = OpenTracebacks()  # type: ignore[no-untyped-call]
        self.child_failed: tuple[str, _Line] | None = None
        """The last exception that only reports another process, and its line."""
        self.origin: dict[str, str] = {}
        """The process in which ray says that the exception was raised."""
        self.opener: int | None = None  # rank at the head of the line in which the last traceback without a label began
        self.handled: list[int] = []  # lines of exceptions that ended nothing, as the line before their traceback says
        self.long_lines = self.not_text = self.uncounted = 0
        self.steps, self.times = StepsBehind(), TimesAbove(year)

    def read(self, blocks: Iterable[bytes]) -> FileReading:
        tail = b""
        for data in whole_lines(counted(blocks, self.summary)):  # type: ignore[no-untyped-call]
            count = self._read_block(data)
            if not self.summary.lines:
                self.summary.labels = launcher_labels(data)  # type: ignore[no-untyped-call]
            self.summary.lines += count
            tail = data
        lines = tail[-LOOK_BACK * 200 :].split(b"\n")
        self.summary.last_time = first_time(reversed(lines[-LOOK_BACK:]), self.year)
        if not any(event.signature in self.matcher.faults for event in self.events):
            self._add_end(lines)
        self._add_cut(lines)
        if not any(event.signature in self.matcher.telling for event in self.events):
            self._add_unknown(lines)
        self._note_counts()
        return FileReading(self.summary, self.events)

    def _add_end(self, lines: list[bytes]) -> None:
        """What the end of a log without a fault says of a failure: that of another process, or within a traceback."""
        if self.child_failed:
            text, place = self.child_failed
            quoted = QUOTED.search(text) if read_stamp(text, self.year).rank is None else None
            matched = self._matches_of_exception(": ".join(("Error", quoted[1]))) if quoted else {CHILD_FAILED: {}}
            for signature, values in matched.items():
                self._add(signature, values, text, place)
        last = self._decode(next((line for line in reversed(lines) if line.strip()), b"")[:MAX_LINE])
        if self.tracebacks.ends_within(last):  # type: ignore[no-untyped-call]
            self._add(UNFINISHED, {}, last, _Line(lines, len(lines) - 1, self.summary.lines))

    def _add_cut(self, lines: list[bytes]) -> None:
        """The ranks of a shared log whose last line, by their label, is within a traceback: they failed, too."""
        ranks = {event.rank for event in self.events}
        for label in sorted(self.tracebacks.unfinished):
            rank = read_stamp(f"{label} ", self.year).rank
            if rank is not None and rank not in ranks:
                self._add(UNFINISHED, {}, f"{label} ...", _Line(lines, len(lines) - 1, self.summary.lines))

    def _add_unknown(self, lines: list[bytes]) -> None:
        """The first of the last lines of the level of an error, near the end of a log that shows nothing else, and no
        step behind: what stands below it follows from it.
        """
        last = [(place, line) for place, line in enumerate(lines) if line.strip()][-_LAST_LINES:]
        first: tuple[str, int] | None = None
        for place, line in reversed(last):
            text = self._decode(line[:MAX_LINE])
            matched = self.matcher.matches(text, self.matcher.candidates(line)).keys()
            behind_bar = _BAR.sub("", text[:1000], count=1)
            if matched & self.matcher.progress and (behind_bar == text[:1000] or not is_error(behind_bar)):
                break
            if self.summary.lines - len(lines) + place + 2 in self.handled:
                continue
            if not matched & self.matcher.benign and is_error(behind_bar[:400]):
                first = first if first and quotes.OLD_CODE.search(first[0]) else (text, place)
            elif first:
                break
        if first:
            text, place = first
            matches: dict[str, dict[str, str]] = {UNKNOWN: {}}
            if code := quotes.OLD_CODE.search(text):
                matches = {_CANN_CODE: code.groupdict()}
            elif (named := quotes.NAMED.search(text)) and not OF_OTHERS.search(text):
                matches = self._matches_of_exception(named[1])
            for signature, values in matches.items():
                self._add(signature, values, text, _Line(lines, place, self.summary.lines - len(lines) + place + 2))

    def _note_counts(self) -> None:
        long, other, alike = self.long_lines, self.not_text, self.uncounted + self._repeated()
        if long:
            lines = count_noun(long, "line")
            self.summary.notes.append(filled("{0} longer than {1} bytes: only the beginning was read", lines, MAX_LINE))
        if other:
            lines = count_noun(other, "line")
            self.summary.notes.append(filled("{0} with bytes that are neither UTF-8 nor GBK", lines))
        if alike:
            self.summary.notes.append(filled("{0}: only counted", count_noun(alike, "repeated event")))
        self.summary.notes += self.matcher.limit.notes()

    def _repeated(self) -> int:
        return sum(max(0, count - MAX_REPEATS) for count in self.repeats.values())

    def _begin_attempt(self) -> None:
        """Another attempt may follow: what the earlier ones repeated does not count against it, and the oldest goes."""
        self.uncounted += self._repeated()
        self.repeats.clear()
        if len(self.events) > MAX_EVENTS // 2:
            self.uncounted += len(self.events) - MAX_EVENTS // 2
            del self.events[: -MAX_EVENTS // 2]

    def _read_block(self, data: bytes) -> int:
        """Reads the lines of a block that can be an event, and returns how many it has; each ends with a newline."""
        for mark, pattern in _UNSHOWN.items():
            data = pattern.sub(b"", data) if mark in data else data
        if self.summary.first_time is None:
            self.summary.first_time = first_time(data[: LOOK_BACK * 200].split(b"\n")[:LOOK_BACK], self.year)
        if not self.summary.lines:
            for line in data.split(b"\n", HEADLESS_LINES)[:HEADLESS_LINES]:
                self.tracebacks.open_headless(self._decode(line[:MAX_LINE]))  # type: ignore[no-untyped-call]
        shapes = shapes_of(data)  # type: ignore[no-untyped-call]
        every, numbered = self.matcher.hot_shapes(shapes), self.matcher.numbered(data)
        hot = self.matcher.needed(every, shapes, data)
        hits = sorted(numbered)
        if hot:
            hits = sorted({*compress(range(len(shapes)), map(hot.__contains__, shapes)), *numbered})
        is_long = has_long_line(data)  # type: ignore[no-untyped-call]
        if hits or is_long or self.tracebacks or self.steps.remaining:
            lines = lines_of(data)  # type: ignore[no-untyped-call]
            if is_long:
                self._count_long(lines)
            self._read_hits(lines, shapes, hits, numbered, (hot, every))
        return len(shapes)

    def _read_hits(
        self,
        lines: list[bytes],
        shapes: list[bytes],
        hits: list[int],
        numbered: dict[int, list[Candidate]],
        candidates: tuple[OfShapes, OfShapes],
    ) -> None:
        """``candidates``: by shape, those that count anywhere, and with those that count only behind an error."""
        hot, every = candidates
        index = 0
        while index < len(lines):
            if not (self.tracebacks or self.steps.remaining):
                place = bisect_left(hits, index)
                if place == len(hits):
                    return
                index = hits[place]
            selected = (every if self.steps.remaining else hot).get(shapes[index], ())
            if index in numbered:
                selected = (*selected, *numbered[index])
            if (selected or self.tracebacks) and (line := lines[index]) and not self.matcher.is_quiet(line):
                line = shown_part(line) if b"\r" in line else line  # type: ignore[no-untyped-call]
                if self.tracebacks or any(all(text in line for text in pattern.encoded) for _, pattern in selected):
                    self._read_line(_Line(lines, index, self.summary.lines + index + 1), line[:MAX_LINE], selected)
            index += 1

    def _count_long(self, lines: list[bytes]) -> None:
        shown = (shown_part(line) for line in lines if len(line) > MAX_LINE)  # type: ignore[no-untyped-call]
        self.long_lines += sum(len(line) > MAX_LINE and not self.matcher.is_quiet(line) for line in shown)

    def _read_line(self, place: _Line, line: bytes, selected: tuple[Candidate, ...]) -> None:
        text = self._decode(line)
        matched = self.matcher.matches(text, selected)
        failed = matched.pop(TRACEBACK, None) is not None
        benign = bool(self.matcher.benign & matched.keys())
        if benign:
            matched.clear()
            failed = False
        opened = failed and head_at(text) >= 0  # type: ignore[no-untyped-call]
        within = bool(self.tracebacks) and self.tracebacks.holds(text)  # type: ignore[no-untyped-call]
        if within:
            if self.tracebacks.is_source(text):  # type: ignore[no-untyped-call]
                matched.clear()  # what the program may print, not what it printed
            self._continue_traceback(text, matched, place, benign=benign)
        elif failed and not opened and not matched and not self._is_of_another(text, place):  # an exception alone
            matched[TRACEBACK] = {}
        if opened and (exception := raised(text)):
            matched |= self._matches_of_exception(exception)
        elif opened:
            self.tracebacks.open(text)  # type: ignore[no-untyped-call]
            before = [self._decode(item[:MAX_LINE]) for item in place.lines[max(0, place.at - 8) : place.at]]
            self.tracebacks.note_harmless(text, before)  # type: ignore[no-untyped-call]
            quoted = _BLOCK.search(b"\n".join(place.lines[max(0, place.at - 4) : place.at]).decode("utf-8", "replace"))
            self.origin = origin.groupdict() if (origin := quoted or RAY_ORIGIN.search(text)) else {}
            if not label_before_head(text):  # type: ignore[no-untyped-call]
                self.opener = read_stamp(text, self.year).rank
        matched = self._thrown(text, place, matched) if _ABORTED in matched else matched
        if matched.keys() & _EXCEPTIONS and OF_OTHERS.search(text):
            self.child_failed = text, place
            matched = {name: values for name, values in matched.items() if name not in _EXCEPTIONS}
        if alone := {name for name in self.matcher.quoted & matched.keys() if "exception" not in matched[name]}:
            rest = text[len(self.tracebacks.label_of(text)) :]  # type: ignore[no-untyped-call]
            match = EXCEPTION.match(rest) or ((named := quotes.NAMED.search(rest)) and EXCEPTION.match(named[1]))
            for name in alone:
                matched[name] = (match.groupdict("") if match else {}) | matched[name]
        for signature, values in matched.items():
            self._add(signature, values, text, place)

    def _is_of_another(self, exception: str, place: _Line, text: str = "") -> bool:
        """Whether an exception, by its name or its line, only reports another process, or that this one was ended."""
        name = exception.partition(":")[0].rpartition(".")[2]
        if name in _WRAPPERS:
            self.child_failed = None if name in _ENDED else (text or exception, place)
        return name in _WRAPPERS

    def _thrown(self, text: str, place: _Line, matched: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
        """The exception of C++ that no signature knows over which the process aborts, as one of Python would be."""
        exception = thrown(text, quotes.reason_below(place.lines, place.at))
        unknown = self._matches_of_exception(exception) if exception else {}
        return unknown if unknown.keys() == {TRACEBACK} else matched

    def _matches_of_exception(self, exception: str) -> dict[str, dict[str, str]]:
        """What the exception of a traceback within a line is: a fault with a signature, or any exception."""
        every = self.matcher.matches(exception, self.matcher.candidates(exception.encode()))
        matched = {name: values for name, values in every.items() if name not in _EXCEPTIONS}
        if not matched.keys() & self.matcher.faults and (match := EXCEPTION.match(exception)):
            matched[TRACEBACK] = {key: value for key, value in match.groupdict().items() if value}
        return matched

    def _continue_traceback(self, text: str, matched: dict[str, dict[str, str]], place: _Line, *, benign: bool) -> None:
        """Finds the exception's line of an open traceback: the first that is neither indented nor empty. One that is
        ``benign`` was handled.
        """
        harmless = benign or self.tracebacks.is_harmless(text)  # type: ignore[no-untyped-call]
        _, exception = self.tracebacks.read(text)  # type: ignore[no-untyped-call]
        if exception and harmless:
            matched.clear()
            self.handled = [*self.handled[-_LAST_LINES:], place.number]
            return
        if not exception:
            origin = RAY_ORIGIN.search(text)
            self.origin = origin.groupdict() if origin else self.origin
            return
        values = {key: value for key, value in exception.groupdict().items() if value}
        if values["exception"] in _UNREAD and self.tracebacks.place.startswith("multiprocessing/spawn.py:"):
            matched.clear()
            self.child_failed = text, place
            return
        self._read_beside(values, matched, place)
        if not matched.keys() - {FOLDED}:
            if self._is_of_another(values["exception"], place, text):
                return
            matched[TRACEBACK] = values
        for name in self.matcher.quoted & matched.keys():
            matched[name] |= values | {"place": self.tracebacks.place, "stage": self.tracebacks.stage}
        for values in matched.values():
            for key, value in self.origin.items():
                values.setdefault(key, value)
        if self.opener is not None and not self.tracebacks.label_of(text):  # type: ignore[no-untyped-call]
            for values in matched.values():
                values.setdefault("rank", str(self.opener))

    def _read_beside(self, values: dict[str, str], matched: dict[str, dict[str, str]], place: _Line) -> None:
        """What says more of an exception than its line: a bare assertion, lines below, the call it is of."""
        count = BELOW if values.get("message") or place.lines[place.at].rstrip().endswith(b":") else 0
        below = [line[:MAX_LINE].decode("utf-8", "replace") for line in place.lines[place.at + 1 :][:count]]
        texts = [line[len(self.tracebacks.label_of(line)) :] for line in below]  # type: ignore[no-untyped-call]
        texts[:0] = [self.tracebacks.statement] if self.tracebacks.statement.startswith("assert ") else []
        exception = continued(values["exception"], values.get("message", ""), texts)
        if exception:
            values["message"] = exception.partition(": ")[2]
        for longer in filter(None, (exception, quotes.with_call(values, self.tracebacks.statement))):
            more = self._matches_of_exception(longer)
            more.pop(TRACEBACK, None)
            if more.keys() - matched.keys():
                matched.clear()
                matched |= more

    def _add(self, signature: str, values: dict[str, str], text: str, place: _Line) -> None:
        if signature == _CANN_CODE and "code" not in values:
            self._add_above(place)
            return
        if signature in self.matcher.attempt_ends or "failed (exitcode: " in text:
            self._begin_attempt()
        stamp = stamp_of_message(text, place.lines, place.at, self.year)
        if signature in self.matcher.progress:
            process = stamp.pid, _number(values, "rank", stamp.rank)
            if _RAY_REPEATED in text or not self.steps.shows(process, values):
                return
        elif signature in self.matcher.outlived:
            self.steps.begin()
        key = (signature, stamp.pid, stamp.rank)
        self.repeats[key] = self.repeats.get(key, 0) + 1
        if self.repeats[key] > MAX_REPEATS or len(self.events) >= MAX_EVENTS:
            return
        time = stamp.time if stamp.time is not None else kubelet_time(place.lines[place.at], self.year)
        inferred = time is None
        values = values | self._beside(signature, place, stamp.time)
        world = world_rank(text[:MAX_TEXT], place.lines[max(0, place.at - 3) : place.at] if stamp.rank is None else [])
        if inferred:
            time = self.times.at(place.lines, place.at)
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
                rank=world if world is not None else _number(values, "rank", stamp.rank),
                local_rank=_number(values, "local_rank", stamp.local_rank),
                device=_number(values, "device", stamp.device),
                host=values.get("host") or stamp.host,
            )
        )

    def _beside(self, signature: str, place: _Line, time: float | None) -> dict[str, str]:
        """What the lines beside it add: NCCL's reason; for how long nothing was printed before an end from outside."""
        if signature == _NCCL_FAILED and (reason := quotes.reason_below(place.lines, place.at)):
            return {"reason": reason}
        if signature in self.matcher.from_outside and time is not None:
            return silence_before(place.lines[max(0, place.at - LOOK_BACK) : place.at], time, self.year)
        return {}

    def _add_above(self, place: _Line) -> None:
        """The error of CANN whose last lines alone are those of a signature: its first line has the code."""
        for at in range(place.at - 1, max(0, place.at - 8) - 1, -1):
            text = self._decode(place.lines[at][:MAX_LINE])
            if code := quotes.OLD_CODE.search(text):
                self._add(_CANN_CODE, code.groupdict(), text, _Line(place.lines, at, place.number - place.at + at))
                break

    def _decode(self, line: bytes) -> str:
        if outer := KUBELET.match(line):
            line = line[outer.end() :]
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


class _Line(NamedTuple):
    """Where a line stands in its block."""

    lines: list[bytes]
    at: int
    number: int

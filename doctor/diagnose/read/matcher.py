"""All patterns of the signatures, arranged for choosing lines by `doctor.diagnose.excerpter.line_choice`."""

from __future__ import annotations

import re
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

from doctor.diagnose.attempts import TORCHRUN_HEADING, TORCHRUN_START, may_be_outlived
from doctor.diagnose.excerpter.line_choice import ShapeIndex
from doctor.diagnose.signature import Pattern, Signature
from doctor.engine.texts import filled

Candidate = tuple[Signature, Pattern]
OfShapes = dict[bytes, tuple[Candidate, ...]]
"""The patterns that lines of a shape may match."""
_MANY_LINES = 200
"""Of a block, from which on it is cheaper to look for a literal in the block than in each."""
MAX_PROGRESS = 200
"""Lines that show progress, behind one error, that are looked at."""


class Matcher:
    """Which patterns a line may match."""

    def __init__(self, signatures: Iterable[Signature]) -> None:
        signatures = list(signatures)
        self.limit = MatchLimit()
        """On the time of each pattern; one that is too slow for one log is left out of all that follow."""
        ending = {item.id for item in signatures if {"launch-end", "restart"} & set(item.traits)}
        self.attempt_ends = frozenset({TORCHRUN_START, TORCHRUN_HEADING} | ending)
        """Signatures behind which another attempt, or another job, may follow in the same file."""
        self.faults = frozenset(item.id for item in signatures if item.role == "root")
        self.telling = frozenset(
            item.id for item in signatures if item.role not in ("evidence", "benign") or "good-end" in item.traits
        )
        """Those that tell how a run ended."""
        self.outlived = frozenset(item.id for item in signatures if may_be_outlived(item))
        """Those behind which progress is looked for."""
        self.progress = frozenset(item.id for item in signatures if "progress" in item.traits)
        """Signatures that are searched for in a few lines behind each error."""
        self.from_outside = frozenset(item.id for item in signatures if {"ends-all", "from-outside"} & set(item.traits))
        """Those with which a process is ended though nothing of it has failed."""
        self.benign = frozenset(item.id for item in signatures if item.role == "benign")
        """Signatures beside which nothing in the same line counts."""
        self.quoted = frozenset(item.id for item in signatures if "quoted" in item.traits)
        """Signatures of exceptions that say themselves what is wrong."""
        patterns: list[Candidate] = [(item, pattern) for item in signatures for pattern in item.compiled]
        quiet = [pattern.encoded[0] for signature, pattern in patterns if signature.quiet]
        pairs = [(pair[1].encoded, pair) for pair in patterns]
        index = ShapeIndex(pairs, quiet)  # type: ignore[no-untyped-call]
        self.candidates: Callable[[bytes], tuple[Candidate, ...]] = index.candidates
        """The patterns that a line of this shape may match; those for a number are not among them."""
        self.hot_shapes: Callable[[list[bytes]], OfShapes] = index.hot_shapes
        """The patterns that lines of these shapes may match, by shape."""
        self.numbered: Callable[[bytes], dict[int, list[Candidate]]] = index.numbered
        """The patterns whose literal is a number that occurs in a block, by the index of the line."""
        self.is_quiet: Callable[[bytes], bool] = index.is_quiet
        """Whether a line is at INFO level, and of no signature for which such lines are looked at."""

    def needed(self, every: OfShapes, shapes: Iterable[bytes], block: bytes) -> OfShapes:
        """The candidates without those that count only behind an error or beside others, and without those whose
        literal the block lacks, where its shape is that of many lines, as the shape of ``file`` is that of ``failed``.
        """
        chosen = {
            shape: tuple(item for item in items if item[0].id not in self.progress) for shape, items in every.items()
        }
        hot = {shape: items for shape, items in chosen.items() if any(item[0].id not in self.benign for item in items)}
        counts: Counter[bytes] = Counter()
        for shape, count in Counter(filter(hot.__contains__, shapes)).items():
            counts.update(dict.fromkeys((pattern.encoded[0] for _, pattern in hot[shape]), count))
        absent = {literal for literal, count in counts.items() if count > _MANY_LINES and literal not in block}
        rest = (
            (shape, tuple(item for item in items if item[1].encoded[0] not in absent)) for shape, items in hot.items()
        )
        return {shape: items for shape, items in rest if items} if absent else hot

    def matches(self, text: str, candidates: Iterable[Candidate]) -> dict[str, dict[str, str]]:
        """By signature that the line matches: the values of all of its patterns that match."""
        values_by_id: dict[str, dict[str, str]] = {}
        for signature, pattern in candidates:
            if not all(literal in text for literal in pattern.literals):
                continue
            if selected := self.limit.search(signature.id, pattern.regex, text):
                values = values_by_id.setdefault(signature.id, {})
                values.update((name, value) for name, value in selected.groupdict().items() if value is not None)
        return values_by_id


LINE_SECONDS = 1.0
"""Seconds of CPU for one pattern on one line of at most 4,096 characters; what is sound takes microseconds."""


class _TooSlow(Exception):
    pass


class MatchLimit:
    """Searches patterns, each at most twice `LINE_SECONDS`; one that takes longer is not searched again.

    The engine of regular expressions looks for signals while it works, so a timer of the process's CPU time ends the
    search that it finds at work twice. Signals reach the main thread alone: in another one there is no limit.
    """

    def __init__(self) -> None:
        self.slow: dict[re.Pattern[str], str] = {}
        """The patterns that took too long, with their signatures."""
        self._is_searching = False
        self._searches = self._last_search = 0

    @contextmanager
    def installed(self) -> Iterator[None]:
        """While a log is read."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGVTALRM, self._expire)
        signal.setitimer(signal.ITIMER_VIRTUAL, LINE_SECONDS, LINE_SECONDS)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)

    def search(self, signature: str, regex: re.Pattern[str], text: str) -> re.Match[str] | None:
        """The match; None where there is none, or where the pattern takes too long."""
        if regex in self.slow:
            return None
        self._searches += 1
        try:
            self._is_searching = True
            try:
                return regex.search(text)
            finally:
                self._is_searching = False
        except _TooSlow:
            self.slow[regex] = signature
            return None

    def notes(self) -> list[str]:
        """A line for each signature with a pattern that took too long."""
        names = sorted(set(self.slow.values()))
        return [
            filled("a pattern of signature {0} took longer than {1} s: it was left out", name, f"{LINE_SECONDS:g}")
            for name in names
        ]

    def _expire(self, number: int, frame: FrameType | None) -> None:
        if self._is_searching and self._last_search == self._searches:
            raise _TooSlow
        self._last_search = self._searches


class StepsBehind:
    """The lines behind the last error of a file that show progress, of each process the first."""

    def __init__(self) -> None:
        self.remaining = 0
        """Lines that are still looked at."""
        self.processes: set[tuple[str, int | None]] = set()
        self.bars: dict[tuple[str, int | None, str], str] = {}

    def begin(self) -> None:
        """An error."""
        self.remaining = MAX_PROGRESS
        self.processes.clear()
        self.bars.clear()

    def shows(self, process: tuple[str, int | None], values: Mapping[str, str]) -> bool:
        """Whether the line is the first of the process that shows progress. A bar does so by a second count: that at
        which the error closed it stands behind the error, too.
        """
        self.remaining -= 1
        count = values.get("bar_count", "")
        if process in self.processes or (
            count and count == self.bars.setdefault((*process, values["bar_total"]), count)
        ):
            return False
        self.processes.add(process)
        return True

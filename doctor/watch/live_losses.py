"""What a watched job tells while it runs: losses, by output and calls of `probe.loss`, and timed out collectives."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from doctor.engine.loss_rules import is_warning
from doctor.engine.watch_summary import LossVerdict
from doctor.watch.loss.followed_file import FollowedFile
from doctor.watch.loss.log_watch import PROBE, LogWatch
from doctor.watch.loss.loss_lines import LossLine

READ_SECONDS = 0.5
JUDGE_SECONDS = 2.0
MAX_FILES = 4096
MOST_BYTES = 1 << 22
"""Of one file, in one look."""
PROBE_DIGITS = 9
"""Significant digits that a stated loss is compared by."""
_TIMED_OUT = re.compile(rb"\[Rank (\d{1,6})\]:? {1,4}(Watchdog caught collective operation timeout: [^\n]{1,400})")
"""Source: torch, ProcessGroupNCCL.cpp, `WorkNCCL::checkTimeout`; torch_npu, ProcessGroupHCCL.cpp."""
_COPY_NAME = re.compile(r"(\d{0,7})-\d{1,10}-(stdout|stderr)\.lines")


class LiveLosses:
    """Reads what is new; `watch` has the series and their verdicts."""

    def __init__(self, copies: Path, digests: Path, watch: LogWatch) -> None:
        self.copies, self.digests, self.watch = copies, digests, watch
        self._files: dict[Path, tuple[FollowedFile, int | None, str]] = {}
        self._announced: set[str] = set()
        self._silence: tuple[int, LossVerdict] | None = None
        """The losses that had been read when it began, and the verdict."""
        self._read_at = self._judged_at = 0.0
        self.tells_silence = True
        self._timed_out: dict[int, str] = {}

    def timeout_of(self, rank: int) -> str:
        """What the watchdog of a rank's backend has said of a collective that did not end; empty where it has not.

        It ends the process up to a minute later, from a thread without Python. Told once: the next process of this
        rank, after a restart, is another one.
        """
        self.read(time.monotonic())
        return self._timed_out.pop(rank, "")

    def look(self, now: float) -> list[LossVerdict]:
        """The verdicts that have not been announced yet. ``now``: seconds of one clock."""
        if now - self._read_at < READ_SECONDS:
            return []
        self._read_at = now
        self.read(now)
        if now - self._judged_at < JUDGE_SECONDS:
            return []
        self._judged_at = now
        return self.new_verdicts(now)

    def new_verdicts(self, now: float | None) -> list[LossVerdict]:
        """Each rule once. ``now``: None where the job is over, and silence is nothing."""
        now = now if self.tells_silence else None
        fresh = [verdict for verdict in self.watch.verdicts(now, is_over=False) if verdict.kind not in self._announced]
        self._announced.update(verdict.kind for verdict in fresh)
        silences = [verdict for verdict in fresh if verdict.kind == "silent"]
        self._silence = (self.watch.losses, silences[0]) if silences else self._silence
        return sorted(fresh, key=is_warning)

    def verdicts(self) -> list[LossVerdict]:
        """All that is wrong so far; a silence that lasts."""
        lasting = [self._silence[1]] if self._silence and self._silence[0] == self.watch.losses else []
        return [*self.watch.verdicts(), *lasting]

    def read(self, now: float) -> None:
        """All that is new. Never raises for what a file holds."""
        self._find()
        quiet = True
        for path, (file, rank, stream) in self._files.items():
            if file.open():
                continue
            for line in file.lines(most=MOST_BYTES):
                quiet = False
                if path.suffix == ".lines":
                    if timed_out := _TIMED_OUT.search(line):
                        self._timed_out.setdefault(int(timed_out[1]), timed_out[2].decode("utf-8", "replace"))
                    self.watch.add_line(line, rank, now, stream)
                elif b'"k":"loss"' in line and (stated := _stated_loss(line)):
                    self.watch.add_reading(stated, stated.rank, now)
            file.notes.clear()  # that a copy is begun anew is no news
        if quiet:
            self.watch.live(now)

    def finish(self, now: float) -> None:
        """The job is over: what came last is read to its end."""
        before = -1
        while before != (before := sum(file.bytes_read for file, _, _ in self._files.values())):
            self.read(now)
        for file, _, _ in self._files.values():
            file.close()

    def _find(self) -> None:
        for path, rank, stream in self._candidates():
            if path not in self._files and len(self._files) < MAX_FILES:
                self._files[path] = FollowedFile(str(path)), rank, stream

    def _candidates(self) -> Iterator[tuple[Path, int | None, str]]:
        for path in sorted(self.copies.glob("*.lines")):
            if match := _COPY_NAME.fullmatch(path.name):
                yield path, int(match[1]) if match[1] else None, "" if match[2] == "stdout" else "on stderr"
        for path in sorted(self.digests.glob("*.probe")):
            if path.is_file() and not path.is_symlink():
                yield path, None, ""


class _LossRecord(msgspec.Struct):
    k: str
    r: int
    s: int
    v: float | str


_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_LossRecord)


def _stated_loss(line: bytes) -> LossLine | None:
    """What a call of `probe.loss` has written; None for anything else."""
    try:
        record = _DECODER.decode(line)
        value = float(record.v)
    except (msgspec.MsgspecError, ValueError, UnicodeError, RecursionError):
        return None
    rank = record.r if record.r >= 0 else None
    return LossLine(value=value, digits=PROBE_DIGITS, name=PROBE, step=record.s, rank=rank)

"""Keeps the marks of saves while a job runs, and compares what it begins with with those of earlier runs.

All of it happens in a thread: the state folder may be on a file server that hangs, and the job must not wait for it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from doctor.engine.watch_summary import ResumeReport
from doctor.watch.resume.compare import compare_with_saves, joined_saves, script_of
from doctor.watch.resume.kept_saves import KeptSave, SaveFolder
from doctor.watch.resume.marks import MAX_MARK, Mark, read_mark

INTERVAL_SECONDS = 1.0
SETTLE_SECONDS = 2.0
"""Without a new mark, after which the ranks of this host have begun."""
FINISH_SECONDS = 10.0
MAX_FILES = 8192
MAX_STEPS = 64


class LiveResume:
    """Of one watch. ``folder``: into which the ranks of this host write; ``command``: what is watched."""

    def __init__(self, folder: Path, environ: Mapping[str, str], command: str, host: str) -> None:
        self.folder, self.environ, self.command, self.host = folder, environ, command, host
        self.report: ResumeReport | None = None
        """The latest; None while nothing was compared, or there is nothing to compare with."""
        self._reported: ResumeReport | None = None
        self._read: dict[str, tuple[int, int]] = {}
        """By file: when it and what was added to it were last written."""
        self._saves: dict[int, dict[int, Mark]] = {}
        self._unkept: set[int] = set()
        self._begun: dict[int, Mark] = {}
        self._changed_at = 0.0
        self._is_compared = True
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Looks a last time; a state folder that does not answer is left alone."""
        self._ends.set()
        if self._thread.ident:
            self._thread.join(FINISH_SECONDS)

    def new_report(self) -> ResumeReport | None:
        """Each report once."""
        report = self.report
        if report is None or report == self._reported:
            return None
        self._reported = report
        return report

    def _run(self) -> None:
        while not self._ends.wait(INTERVAL_SECONDS):
            self.look(is_last=False)
        self.look(is_last=True)

    def look(self, is_last: bool) -> None:
        with contextlib.suppress(OSError):
            self._take_marks()
            if self._unkept:
                self._keep()
        settled = is_last or time.monotonic() - self._changed_at > SETTLE_SECONDS
        if self._begun and not self._is_compared and settled:
            self._is_compared = True
            with contextlib.suppress(OSError):
                self._compare()

    def _take_marks(self) -> None:
        for path in sorted(self.folder.glob("*.mark"))[:MAX_FILES]:
            more = path.with_suffix(".more")
            stamp = _written(path), _written(more)
            if self._read.get(path.name) == stamp or not stamp[0]:
                continue
            self._read[path.name] = stamp
            mark = read_mark(_content(path), _content(more))
            if mark is None:
                continue
            if mark.k == "saved":
                self._saves.setdefault(mark.s, {})[mark.r] = mark
                self._unkept.add(mark.s)
                while len(self._saves) > MAX_STEPS:
                    del self._saves[next(iter(self._saves))]
            elif mark.r not in self._begun or self._begun[mark.r].at <= mark.at:
                self._begun[mark.r], self._changed_at, self._is_compared = mark, time.monotonic(), False

    def _keep(self) -> None:
        steps, self._unkept = self._unkept, set()
        with SaveFolder.opened(self.environ, create=True) as folder:
            if folder is None:
                return
            for step in sorted(steps & self._saves.keys()):
                marks = self._saves[step]
                first = min(marks.values(), key=lambda mark: mark.at)
                folder.write(KeptSave(self.command, self.host, first.w, step, first.at, list(marks.values())))
            folder.prune()

    def _compare(self) -> None:
        began = min(mark.at for mark in self._begun.values())
        with SaveFolder.opened(self.environ, create=False) as folder:
            saves = [save for save in folder.saves() if save.at < began] if folder else []
        self.report = compare_with_saves(self._begun, joined_saves(saves), script_of(self.command))


def _written(path: Path) -> int:
    try:
        return path.stat(follow_symlinks=False).st_mtime_ns
    except OSError:
        return 0


def _content(path: Path) -> bytes:
    if path.is_symlink() or not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(MAX_MARK + 1)

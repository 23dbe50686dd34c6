"""The files of a watch's reports: one that another report has written meanwhile is not written over."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

MOST_REPORTS = 1000

_State = tuple[int, int, int] | None


class ReportFiles:
    """What was there when the watch started may be replaced, once; all else stays, and the report gets another name.

    A job that is started again under one watch has several reports, and two watches may have been given one file.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._before: dict[str, _State] = {path: _state(path) for path in paths}

    def free_path(self, path: str) -> str:
        """Where the report for ``path`` goes now: there, or beside it, as ``watch-2.json`` for ``watch.json``.

        >>> ReportFiles([]).free_path("/dev/stdout")
        '/dev/stdout'
        """
        before = self._before.get(path)
        if before is None and _claim(path):
            return path
        if before is not None and _state(path) == before:
            self._before[path] = None
            return path
        if not Path(path).is_file():  # a terminal, a FIFO; or a folder that cannot be written to, which the writer says
            return path
        suffix = Path(path).suffix
        stem = path[: len(path) - len(suffix)]
        names = (f"{stem}-{number}{suffix}" for number in range(2, MOST_REPORTS))
        return next(filter(_claim, names), path)


def _state(path: str) -> _State:
    try:
        about = os.stat(path)
    except OSError:
        return None
    return (about.st_ino, about.st_mtime_ns, about.st_size) if stat.S_ISREG(about.st_mode) else None


def _claim(path: str) -> bool:
    """Makes an empty file where there is none. False where there is one, or where none can be made."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    except OSError:
        return False
    return True

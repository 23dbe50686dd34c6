"""Where records of runs lie: ``~/.local/state/doctor/history/``, one small file for each, for their owner alone.

All access goes through the opened folder, so that nobody can put another one in its place meanwhile; no link is
followed in it. A file appears under its name at once or not at all.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from itertools import islice
from pathlib import Path

from doctor.config.file import HistorySettings, state_folder
from doctor.engine.sanitize import printable_excerpt
from doctor.engine.texts import filled
from doctor.history.run_record import MAX_RECORD_BYTES, BadRecord, RunRecord, decode, encode

FOLDER = "history"
SUFFIX = ".run"
_NAME = re.compile(r"\d{8}-\d{6}-\d{6}-[0-9a-f]{8}\.run\Z", re.ASCII)
_DRAFT = re.compile(r"\.\d{8}-\d{6}-\d{6}-[0-9a-f]{8}\.run\Z", re.ASCII)
DRAFT_SECONDS = 3600
"""Seconds after which an unfinished file is that of a run that was killed."""


class NoHistory(Exception):
    """There is no place for a history, or it cannot be used: one line; empty where there is nothing to say."""


class HistoryFolder:
    """The opened folder."""

    def __init__(self, handle: int, path: str) -> None:
        self._handle, self.path = handle, path
        self.damaged = 0
        """Files that held no record when they were read."""

    def names(self) -> list[str]:
        """The files of all runs, oldest first. Raises: OSError."""
        return sorted(name for name in os.listdir(self._handle) if _NAME.match(name))

    def read(self, name: str) -> RunRecord | None:
        """One run; None for a file that has gone, and for one that is counted as damaged."""
        try:
            handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._handle)
        except FileNotFoundError:
            return None
        except OSError:
            self.damaged += 1
            return None
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(handle)
            try:
                if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
                    raise BadRecord("is no file of this user")
                return decode(file.read(MAX_RECORD_BYTES + 1))
            except (BadRecord, OSError):
                self.damaged += 1
                return None

    def newest(self, limit: int, names: Sequence[str] | None = None) -> Iterator[RunRecord]:
        """Up to ``limit`` runs, newest first; ``names``: of these files, oldest first. Raises: OSError."""
        records = (self.read(name) for name in reversed(self.names() if names is None else names))
        return islice((record for record in records if record is not None), limit)

    def write(self, record: RunRecord, now: datetime) -> str:
        """Adds a run; its file's name. Raises: OSError; ValueError for a record that is too large."""
        data = encode(record)
        name = f"{now:%Y%m%d-%H%M%S-%f}-{os.urandom(4).hex()}{SUFFIX}"
        draft = f".{name}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(draft, flags, 0o600, dir_fd=self._handle)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.rename(draft, name, src_dir_fd=self._handle, dst_dir_fd=self._handle)
        except BaseException:
            with suppress(OSError):
                os.unlink(draft, dir_fd=self._handle)
            raise
        return name

    def prune(self, settings: HistorySettings, now: datetime) -> None:
        """Removes what is more, older or larger than the settings allow, oldest first. Raises: OSError."""
        oldest = f"{now - timedelta(days=settings.days):%Y%m%d-%H%M%S}"
        room, kept = settings.mebibytes << 20, 0
        with os.scandir(self._handle) as entries:
            files = sorted(((entry.name, entry) for entry in entries), reverse=True)
        for name, entry in files:
            is_run = bool(_NAME.match(name))
            if not is_run and not _DRAFT.match(name):
                continue
            with suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                if is_run:
                    room -= status.st_size
                    kept += 1
                    removes = kept > settings.runs or room < 0 or name < oldest
                else:
                    removes = now.timestamp() - status.st_mtime > DRAFT_SECONDS
                if removes:
                    os.unlink(name, dir_fd=self._handle)

    def close(self) -> None:
        os.close(self._handle)


@contextmanager
def open_history(environ: Mapping[str, str], create: bool) -> Iterator[HistoryFolder]:
    """The user's folder; ``create``: made where there is none. Raises: NoHistory."""
    base = state_folder(environ)
    is_in_home = not os.path.isabs(environ.get("XDG_STATE_HOME", ""))
    if base is None or (is_in_home and not os.path.isdir(environ["HOME"])):
        raise NoHistory("")
    path = base / FOLDER
    if is_masked(path):
        raise NoHistory("")
    try:
        folder = HistoryFolder(open_private(path, create), str(path))
    except FileNotFoundError:
        raise NoHistory("") from None
    except OSError as error:
        raise NoHistory(filled("{0}: {1}", printable_excerpt(str(path), 200), error.strerror or error)) from None
    try:
        yield folder
    finally:
        folder.close()


def is_masked(path: Path) -> bool:
    """A link to /dev/null: this user keeps no history, as with ``~/.bash_history``."""
    try:
        return os.readlink(path) == os.devnull
    except OSError:
        return False


def open_private(path: Path, create: bool) -> int:
    """Raises: OSError, also for a folder that is another user's, or that others may write to."""
    if create:
        _make(path)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    parent = os.open(path.parent, flags)
    try:
        _require_private(parent)
        handle = os.open(path.name, flags, dir_fd=parent)
    finally:
        os.close(parent)
    try:
        _require_private(handle)
    except OSError:
        os.close(handle)
        raise
    return handle


def _make(path: Path) -> None:
    """Makes the folder and those above it, none in the home of another user. Raises: OSError."""
    absent = []
    while not path.exists():
        absent.append(path)
        path = path.parent
    owner = path.stat().st_uid
    if absent and os.geteuid() == 0 and owner != 0:
        raise OSError(0, filled("{0} belongs to user {1}; expected your own", printable_excerpt(str(path), 200), owner))
    for folder in reversed(absent):
        folder.mkdir(mode=0o700, exist_ok=True)


def _require_private(handle: int) -> None:
    status = os.fstat(handle)
    if status.st_uid != os.geteuid():
        raise OSError(0, filled("belongs to user {0}; expected your own", status.st_uid))
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise OSError(0, filled("others can write it (mode {0}); expected 0700", f"{stat.S_IMODE(status.st_mode):04o}"))


def current_time() -> datetime:
    """UTC."""
    return datetime.now(timezone.utc)

"""Where records of runs lie: ``~/.local/state/doctor/history/``, one small file for each, for their owner alone."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from itertools import islice

from doctor.config.file import HistorySettings
from doctor.engine.sanitize import file_name
from doctor.engine.texts import filled
from doctor.history.private_folder import PrivateFolder, private_path
from doctor.history.run_record import MAX_RECORD_BYTES, BadRecord, RunRecord, decode, encode

FOLDER = "history"
SUFFIX = ".run"
_NAME = re.compile(r"\d{8}-\d{6}-\d{6}-[0-9a-f]{8}\.run\Z", re.ASCII)


class NoHistory(Exception):
    """There is no place for a history, or it cannot be used: one line; empty where there is nothing to say."""


class HistoryFolder(PrivateFolder):
    """The opened folder."""

    damaged = 0
    """Files that held no record when they were read."""

    def names(self) -> list[str]:
        """The files of all runs, oldest first. Raises: OSError."""
        return sorted(name for name in os.listdir(self.handle) if _NAME.match(name))

    def read(self, name: str) -> RunRecord | None:
        """One run; None for a file that has gone, and for one that is counted as damaged."""
        try:
            return decode(self.read_file(name, MAX_RECORD_BYTES + 1))
        except FileNotFoundError:
            return None
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
        self.write_file(name, data)
        return name

    def prune(self, settings: HistorySettings, now: datetime) -> None:
        """Removes what is more, older or larger than the settings allow, oldest first. Raises: OSError."""
        oldest = f"{now - timedelta(days=settings.days):%Y%m%d-%H%M%S}"
        room, kept = settings.mebibytes << 20, 0
        for name in reversed(self.names()):
            with suppress(FileNotFoundError):
                room -= os.stat(name, dir_fd=self.handle, follow_symlinks=False).st_size
                kept += 1
                if kept > settings.runs or room < 0 or name < oldest:
                    os.unlink(name, dir_fd=self.handle)
        self.remove_old_drafts(_NAME, now.timestamp())


@contextmanager
def open_history(environ: Mapping[str, str], create: bool) -> Iterator[HistoryFolder]:
    """The user's folder; ``create``: made where there is none. Raises: NoHistory."""
    path = private_path(environ, FOLDER)
    if path is None:
        raise NoHistory("")
    try:
        folder = HistoryFolder(path, create)
    except FileNotFoundError:
        raise NoHistory("") from None
    except OSError as error:
        raise NoHistory(filled("{0}: {1}", file_name(path), error.strerror or error)) from None
    try:
        yield folder
    finally:
        folder.close()


def current_time() -> datetime:
    """UTC."""
    return datetime.now(timezone.utc)

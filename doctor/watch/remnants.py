"""Folders of watches that were killed: removed when the next watch of their user starts on the host."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

PREFIX = "doctor-watch-"
LOCK = "lock"
"""A file in the folder of a watch, locked as long as the process that watches lives."""
LEAST_AGE = 60.0
"""Seconds since the last change in a folder without a lock: its watch may just be starting."""
MOST_FOLDERS = 256
_MAX_ENVIRON = 1 << 20


def remove_remnants(places: Sequence[str], variable: str) -> list[str]:
    """Removes the folders in ``places`` that a watch of this user has left, and no process uses; returns their paths.

    In use: its watch lives (the lock), or a process of this user has the folder in ``variable`` of its environment: the
    ranks of a watch that was killed go on. What cannot be looked at stays.
    """
    removed: list[str] = []
    for place in places:
        paths = [Path(place, name) for name in _names(place)]
        if not paths:
            continue
        used = _values(variable)
        for path in paths:
            with _unused(path, used) as is_unused:
                if is_unused:
                    shutil.rmtree(path, ignore_errors=True)
                    removed.append(str(path))
    return removed


def _names(place: str) -> list[str]:
    """The folders with our prefix; none where another user could put another folder in the place of this user's."""
    try:
        about = os.stat(place)
        if about.st_uid not in (0, os.getuid()) or (about.st_mode & 0o022 and not about.st_mode & stat.S_ISVTX):
            return []
        return sorted(name for name in os.listdir(place) if name.startswith(PREFIX))[:MOST_FOLDERS]
    except OSError:
        return []


@contextlib.contextmanager
def _unused(path: Path, used: frozenset[str]) -> Iterator[bool]:
    """Whether a folder is this user's and no process uses it; its lock is held meanwhile."""
    descriptors: list[int] = []
    try:
        yield str(path) not in used and _lock(path, descriptors)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _lock(path: Path, descriptors: list[int]) -> bool:
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        descriptors.append(folder)
        about = os.fstat(folder)
        if about.st_uid != os.getuid() or about.st_mode & 0o077:
            return False
        try:
            lock = os.open(LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=folder)
        except FileNotFoundError:
            return time.time() - about.st_mtime > LEAST_AGE
        descriptors.append(lock)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _values(variable: str) -> frozenset[str]:
    """The values of a variable in the environments of all processes that can be read."""
    prefix = f"{variable}=".encode()
    values: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError), (process / "environ").open("rb") as file:
            entries = file.read(_MAX_ENVIRON).split(b"\0")
            values.update(os.fsdecode(entry[len(prefix) :]) for entry in entries if entry.startswith(prefix))
    return frozenset(values)

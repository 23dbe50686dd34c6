"""The folder of a watch on one host: the hook that travels by environment, and what the ranks write.

Folders of watches that were killed are removed when the next watch of their user starts.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from doctor.engine.texts import filled
from doctor.watch.data_folder import DataFolder
from doctor.watch.hook import hook_text

VARIABLE = "DOCTOR_WATCH"
"""Names the folder in the job's environment."""
PLACES = ("/dev/shm", "/tmp")
LEAST_FREE = 32 << 20
"""Bytes that a place must have free."""
READY_SECONDS = 10.0


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


def _places() -> Iterator[str]:
    """Where a folder can be made, the best first."""
    for place in PLACES:
        with contextlib.suppress(OSError):
            space = os.statvfs(place)
            if os.access(place, os.W_OK | os.X_OK) and space.f_bavail * space.f_frsize >= LEAST_FREE:
                yield place


def _is_own(path: Path) -> bool:
    try:
        return path.lstat().st_uid == os.getuid()
    except OSError:
        return False


class WatchFolder:
    """A folder that only this user can enter; gone with the watch."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = -1
        """Held as long as the process that watches lives."""

    @classmethod
    def create(cls) -> WatchFolder:
        """Raises: OSError where no place can be written to."""
        remove_remnants(PLACES, VARIABLE)
        folder = cls(Path(tempfile.mkdtemp(prefix=PREFIX, dir=next(_places(), None))))
        folder._try_lock()
        folder.fill()
        return folder

    @classmethod
    def shared(cls, identity: str) -> tuple[WatchFolder, bool]:
        """The folder of all processes of a launch on this host, and whether this one is to watch; the others do not.

        ``identity``: the same text in all of them. Raises: OSError; TimeoutError where no other makes the folder ready.
        """
        name = hashlib.sha256(f"{os.getuid()} {identity}".encode()).hexdigest()[:16]
        paths = [Path(place, f"{PREFIX}{os.getuid()}-{name}") for place in [*_places(), tempfile.gettempdir()]]
        folder = cls(next(filter(_is_own, paths), paths[0]))
        limit = time.monotonic() + READY_SECONDS
        while not folder._try_lock():
            if folder.ready.is_dir():
                return folder, False
            if time.monotonic() > limit:
                text = "no other process of the launch made {0} ready within {1} s"
                raise TimeoutError(filled(text, folder.path, f"{READY_SECONDS:g}"))
            time.sleep(0.02)
        # What a watch of the same launch has left that was killed.
        for remnant in (folder.ready, folder.hook, folder.ranks, folder.copies, folder.data.digests, folder.data.hooks):
            shutil.rmtree(remnant, ignore_errors=True)
        folder.fill()
        folder.ready.mkdir()
        remove_remnants(PLACES, VARIABLE)
        return folder, True

    def _try_lock(self) -> bool:
        """Makes the folder where it is not there, and locks it; False while another process has it.

        Raises: OSError where it is not this user's alone.
        """
        self.path.mkdir(0o700, exist_ok=True)
        about = self.path.lstat()
        if not self.path.is_dir() or self.path.is_symlink() or about.st_uid != os.getuid() or about.st_mode & 0o77:
            raise OSError(filled("{0} is not this user's alone", self.path))
        try:
            lock = os.open(self.path / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except FileNotFoundError:  # another watch has just removed the folder
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock).st_ino == os.stat(self.path / LOCK).st_ino:
                self.lock = lock
                return True
        except (BlockingIOError, FileNotFoundError):
            pass
        os.close(lock)
        return False

    def fill(self) -> None:
        """Raises: OSError."""
        self.ranks.mkdir()
        self.copies.mkdir()
        self.hook.mkdir()
        (self.hook / "sitecustomize.py").write_text(hook_text(), "ascii")
        self.data.fill()

    @property
    def ranks(self) -> Path:
        return self.path / "ranks"

    @property
    def copies(self) -> Path:
        """Copies of lines of the job's output that may tell a loss."""
        return self.path / "copies"

    @property
    def hook(self) -> Path:
        """What stands first in PYTHONPATH."""
        return self.path / "hook"

    @property
    def ready(self) -> Path:
        """There when the folder is complete."""
        return self.path / "ready"

    @property
    def data(self) -> DataFolder:
        """The hooks of ``--data``, and the digests of all ranks."""
        return DataFolder(self.path)

    def environment(self, environ: Mapping[str, str], schedule: str = "") -> dict[str, str]:
        """The environment of the watched command. ``schedule``: of the steps whose data is compared; empty: of none."""
        paths = [str(self.hook), *filter(None, [environ.get("PYTHONPATH", "")])]
        return {**environ, **self.variables(schedule), "PYTHONPATH": os.pathsep.join(paths)}

    def variables(self, schedule: str = "") -> dict[str, str]:
        """Those that the hook reads, beside its place in PYTHONPATH."""
        return {VARIABLE: str(self.path), **self.data.environment(schedule)}

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1

"""The folder of a watch on one host: the hook that travels by environment, and what the ranks write."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from doctor.engine.texts import filled
from doctor.watch.data_folder import DataFolder
from doctor.watch.hook import hook_text
from doctor.watch.remnants import LOCK, PREFIX, remove_remnants

VARIABLE = "DOCTOR_WATCH"
"""Names the folder in the job's environment."""
PLACES = ("/dev/shm", "/tmp")
LEAST_FREE = 32 << 20
"""Bytes that a place must have free."""
READY_SECONDS = 10.0


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
                raise TimeoutError(
                    filled(
                        "no other process of the launch made {0} ready within {1} s", folder.path, f"{READY_SECONDS:g}"
                    )
                )
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
        """Where each rank has its files."""
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
        """Also gives the lock back."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1

"""The folder where processes of one user on one host meet: a lock, and a socket beside it.

Other users may write to ``/tmp``, too, and lay out a folder or a link of their own there: one that is not a folder of
this user's alone is refused, and everything in it is reached through the folder once opened, never by its path again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
import time
from collections.abc import Mapping

from doctor.engine.sanitize import printable
from doctor.engine.texts import filled


class UntrustedFolder(Exception):
    """A folder that somebody else may write to: which, and why."""


class LeaderLock:
    """The leader's lock; the kernel gives it up with the process."""

    def __init__(self, file: int) -> None:
        self.file = file

    def close(self) -> None:
        os.close(self.file)


class LockFolder:
    """An open folder, and the name of what is in it for one launch."""

    def __init__(self, folder: int, key: str) -> None:
        self._folder, self._key = folder, key
        self._socket = f"/proc/self/fd/{folder}/{key}.socket"
        """Through the descriptor: no other folder can take its place, and no path is too long for a socket."""

    def try_lock(self) -> LeaderLock | None:
        """None while another one has it."""
        while True:
            file = self._open(os.O_CREAT)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
                return None
            if self._is_current(file):
                return LeaderLock(file)
            os.close(file)  # its leader took it away as we opened it

    def listen(self) -> socket.socket:
        """For the holder of the lock. Raises: OSError."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self._key}.socket", dir_fd=self._folder)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(self._socket)
            listener.listen(1024)
            listener.setblocking(False)
        except OSError:
            listener.close()
            raise
        return listener

    def connect(self, until: float) -> socket.socket | None:
        """None where no process listens."""
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.settimeout(max(0.01, until - time.monotonic()))
        try:
            link.connect(self._socket)
        except OSError:
            link.close()
            return None
        return link

    def leader_died(self, until: float) -> bool:
        """Whether the leader died: one that ends in order takes its lock away. False as soon as it did."""
        while True:
            try:
                file = self._open(0)
            except FileNotFoundError:
                return False
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return self._is_current(file)
            except BlockingIOError:
                if time.monotonic() >= until:
                    return False
                time.sleep(0.01)
            finally:
                os.close(file)

    def remove_files(self) -> None:
        """The leader's end: from now on other processes find no leader to wait for."""
        for name in (f"{self._key}.socket", f"{self._key}.lock"):
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=self._folder)

    def close(self) -> None:
        os.close(self._folder)

    def _open(self, flags: int) -> int:
        flags |= os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(f"{self._key}.lock", flags, 0o600, dir_fd=self._folder)

    def _is_current(self, file: int) -> bool:
        """Whether the file is still the one that others open."""
        try:
            return os.path.samestat(
                os.fstat(file), os.stat(f"{self._key}.lock", dir_fd=self._folder, follow_symlinks=False)
            )
        except FileNotFoundError:
            return False


def open_lock_folder(key: str, environ: Mapping[str, str]) -> LockFolder:
    """The user's own folder, made if need be. Raises: OSError, Untrusted."""
    name = f"doctor-{os.geteuid()}"
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    base = runtime if runtime.startswith("/") and _is_private(runtime) else environ.get("TMPDIR") or "/tmp"
    path = f"{base.rstrip('/')}/{name}"
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(folder)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            has = filled("user {0}, mode {1}", status.st_uid, f"{stat.S_IMODE(status.st_mode):04o}")
            raise UntrustedFolder(
                filled("{0} belongs to {1}; expected user {2}, mode 0700", printable(path), has, os.geteuid())
            )
    except BaseException:
        os.close(folder)
        raise
    return LockFolder(folder, key)


def _is_private(path: str) -> bool:
    try:
        status = os.stat(path)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & 0o022

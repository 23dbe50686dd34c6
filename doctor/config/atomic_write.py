"""Writes each file that the user named: completely or not at all, and never through a link of another user."""

from __future__ import annotations

import errno
import os
import select
import stat
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO

from doctor.engine.texts import filled

MAX_LINKS = 40
STALLED_SECONDS = 2.0
"""Seconds without progress after which the reader of a pipe counts as gone."""


def write_atomic(path: str | os.PathLike[str], data: bytes, mode: int = 0o600) -> None:
    """Puts ``data`` at ``path`` in one step: who reads meanwhile finds what was there before, and a full disk changes
    nothing. What is no plain file (``/dev/stderr``, a pipe, ``/dev/termination-log``) is written into as it is, and
    for as long as its reader reads. A link or pipe that another user made is replaced, not followed.

    Raises: OSError.
    """
    target = _follow_own_links(Path(path))
    if _is_stream(target):
        return _write_stream(target, data)
    try:
        _replace(target, lambda file: file.write(data), mode)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        _write_stream(target, data)  # A file of this file system that is mounted on another of it.
    return None


def write_pieces(path: str | os.PathLike[str], pieces: Callable[[], Iterable[bytes]]) -> None:
    """`write_atomic` of what is made while it is written; into a pipe or device it goes whole.

    Raises: OSError; what ``pieces`` raises.
    """
    if _is_stream(_follow_own_links(Path(path))):
        return write_atomic(path, b"".join(pieces()))
    try:
        write_atomic_by(path, lambda file: file.writelines(pieces()))
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        write_atomic(path, b"".join(pieces()))
    return None


def write_atomic_by(path: str | os.PathLike[str], write: Callable[[IO[bytes]], object], mode: int = 0o600) -> None:
    """The same for what is too large to be in memory: ``write`` puts it into a file, which then gets its name.

    Raises: OSError, also where there is a pipe or device; what ``write`` raises.
    """
    target = _follow_own_links(Path(path))
    if _is_stream(target):
        raise OSError(errno.EINVAL, "is no plain file", str(target))
    _replace(target, write, mode)


def _replace(target: Path, write: Callable[[IO[bytes]], object], mode: int) -> None:
    """Raises: OSError; what ``write`` raises. Then nothing is left of it."""
    handle, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), mode)
        os.replace(name, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def _write_stream(target: Path, data: bytes) -> None:
    handle = _open_stream(target)
    try:
        _write_all(handle, data)
    finally:
        os.close(handle)


class GrowingFile:
    """A file that is written piece by piece during a run. Raises: OSError, here and from `write`."""

    def __init__(self, path: str, mode: int = 0o600) -> None:
        target = _follow_own_links(Path(path))
        if _is_stream(target):
            self._handle = _open_stream(target)
            return
        with suppress(FileNotFoundError):
            status = target.lstat()
            # Another name of somebody's file, or a link: it goes, and what it stands for stays.
            if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1 or status.st_uid != os.geteuid():
                target.unlink()
        self._handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        os.ftruncate(self._handle, 0)

    def write(self, data: bytes) -> None:
        _write_all(self._handle, data)


def _follow_own_links(path: Path) -> Path:
    """The target of links that we or root made, and that no other user may replace. Raises: OSError for a folder behind
    another user's link.
    """
    for _ in range(MAX_LINKS):
        _check_folders(path.parent)
        if _is_kernel_link(path) or not path.is_symlink() or not _is_ours(path):
            return path
        path = path.parent / path.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def _check_folders(folder: Path) -> None:
    """Raises: OSError where one of the folders on the way is another user's link."""
    for part in (folder, *folder.parents):
        owner = part.lstat().st_uid
        if owner not in (0, os.geteuid()) and part.is_symlink():
            raise OSError(errno.ELOOP, filled("{0} is a link of user {1}; expected a folder", part, owner), str(part))


def _is_kernel_link(path: Path) -> bool:
    """One of ``/proc/self/fd``: it leads to a file that is open already; the text of the link has no effect."""
    return os.path.realpath(path.parent).startswith("/proc/")


def _is_ours(path: Path) -> bool:
    """We or root made it, and no other user may replace it."""
    trusted, folder = (0, os.geteuid()), path.parent.stat()
    others_write = folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not folder.st_mode & stat.S_ISVTX
    return path.lstat().st_uid in trusted and folder.st_uid in trusted and not others_write


def _is_stream(target: Path) -> bool:
    """Whether it is written into as it is: no plain file, or one that is mounted and cannot be replaced."""
    if _is_kernel_link(target):
        return True
    try:
        status = target.lstat()
    except FileNotFoundError:
        return False
    if stat.S_ISLNK(status.st_mode):
        return False
    if stat.S_ISREG(status.st_mode):
        return os.path.ismount(target)
    return stat.S_ISDIR(status.st_mode) or status.st_uid in (0, os.geteuid())


def _open_stream(target: Path) -> int:
    """Raises: OSError, also for a pipe without a reader."""
    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    flags |= 0 if _is_kernel_link(target) else os.O_NOFOLLOW
    try:
        handle = os.open(target, flags)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError(errno.ENXIO, "is a pipe without a reader", str(target)) from None
        raise
    if stat.S_ISREG(os.fstat(handle).st_mode):
        os.ftruncate(handle, 0)
    return handle


def _write_all(handle: int, data: bytes) -> None:
    """Raises: OSError, also where the reader of a pipe has read nothing for a while."""
    poll, remaining, last = select.poll(), memoryview(data), time.monotonic()
    poll.register(handle, select.POLLOUT)
    while remaining:
        try:
            remaining, last = remaining[os.write(handle, remaining) :], time.monotonic()
        except BlockingIOError:
            poll.poll(100)
            if time.monotonic() - last > STALLED_SECONDS:
                raise OSError(
                    errno.ETIMEDOUT, filled("nothing was read from it for {0} s", f"{STALLED_SECONDS:g}")
                ) from None

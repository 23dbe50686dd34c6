"""A folder of this user's own below ``~/.local/state/doctor/``, and files in it that no other user sees or replaces.

All access goes through the opened folder, so that it cannot be replaced meanwhile; no link is followed in it. A file
appears under its name at once or not at all.
"""

from __future__ import annotations

import os
import re
import stat
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec

from doctor.config.file import distrusted, state_folder
from doctor.engine.decoding import inflate
from doctor.engine.sanitize import file_name
from doctor.engine.texts import filled

DRAFT_SECONDS = 3600
"""An older draft is of a writer that was killed."""
T = TypeVar("T")
Folder = TypeVar("Folder", bound="PrivateFolder")


def private_path(environ: Mapping[str, str], name: str) -> Path | None:
    """Where the folder is or is to be; None where the user has no home, or wants none of that name."""
    base = state_folder(environ)
    is_in_home = not os.path.isabs(environ.get("XDG_STATE_HOME", ""))
    if base is None or (is_in_home and not os.path.isdir(environ["HOME"])) or _is_masked(base / name):
        return None
    return base / name


class PrivateFolder:
    """The opened folder. Others of this user may write to it at the same time."""

    name: ClassVar[str]
    """Below the state folder."""

    @classmethod
    @contextmanager
    def opened(cls: type[Folder], environ: Mapping[str, str], create: bool) -> Iterator[Folder | None]:
        """The user's folder; None where there is none, or none can be used."""
        path = private_path(environ, cls.name)
        try:
            folder = cls(path, create) if path else None
        except OSError:
            folder = None
        try:
            yield folder
        finally:
            if folder:
                folder.close()

    def __init__(self, path: Path, create: bool) -> None:
        """Raises: OSError, also for a folder that is another user's, or that others may write to."""
        self.path = str(path)
        self.handle = _open(path, create)

    def read_file(self, name: str, limit: int) -> bytes:
        """The first ``limit`` bytes. Raises: OSError, also for what is no regular file of this user."""
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self.handle)
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
                raise OSError(0, "is no file of this user")
            return file.read(limit)

    def write_file(self, name: str, data: bytes) -> None:
        """Replaces a file of that name. Until all is written it is a draft, ``.NAME``. Raises: OSError."""
        draft = f".{name}"
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=self.handle)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(draft, flags, 0o600, dir_fd=self.handle)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.rename(draft, name, src_dir_fd=self.handle, dst_dir_fd=self.handle)
        except BaseException:
            with suppress(OSError):
                os.unlink(draft, dir_fd=self.handle)
            raise

    def read_packed(self, name: str, kind: type[T], limit: int, most: int) -> T | None:
        """What `packed` has made of a value; None where it cannot be read. Bytes: ``limit``, and ``most`` unpacked."""
        with suppress(OSError, ValueError, msgspec.DecodeError, RecursionError):
            return msgspec.msgpack.decode(inflate(self.read_file(name, limit), most), type=kind)
        return None

    def remove_old_drafts(self, name: re.Pattern[str], now: float | None = None) -> None:
        """Removes what killed writers left of files with such names. Raises: OSError."""
        now = time.time() if now is None else now
        for entry in os.listdir(self.handle):
            if entry.startswith(".") and name.match(entry, 1):
                with suppress(FileNotFoundError):
                    if now - os.stat(entry, dir_fd=self.handle, follow_symlinks=False).st_mtime > DRAFT_SECONDS:
                        os.unlink(entry, dir_fd=self.handle)

    def close(self) -> None:
        os.close(self.handle)


def packed(value: Any) -> bytes:
    """As `PrivateFolder.read_packed` reads it."""
    return zlib.compress(msgspec.msgpack.encode(value), 1)


def _is_masked(path: Path) -> bool:
    """A link to /dev/null: this user keeps nothing there, as with ``~/.bash_history``."""
    try:
        return os.readlink(path) == os.devnull
    except OSError:
        return False


def _open(path: Path, create: bool) -> int:
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
        raise OSError(0, filled("{0} belongs to user {1}; expected your own", file_name(path), owner))
    for folder in reversed(absent):
        folder.mkdir(mode=0o700, exist_ok=True)


def _require_private(handle: int) -> None:
    if problem := distrusted(os.fstat(handle)):
        raise OSError(0, problem)

"""A secret of the user's own, in the state folder: the same in all processes of the user that share a home."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from doctor.config.file import state_folder
from doctor.engine.texts import filled

KEY_BYTES = 32
"""Bytes of the key."""


def load_or_create_key(environ: Mapping[str, str]) -> tuple[bytes, str]:
    """The user's key, made when there is none; else one for this process alone, and why."""
    try:
        return _load_or_create(_key_folder(environ) / "redact.key"), ""
    except OSError as error:
        return os.urandom(KEY_BYTES), error.strerror or type(error).__name__


def _key_folder(environ: Mapping[str, str]) -> Path:
    folder = state_folder(environ)
    if folder is None:
        raise OSError(0, "HOME is not set")
    return folder


def _load_or_create(path: Path) -> bytes:
    with suppress(FileNotFoundError):
        return _read(path)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.urandom(8).hex()}")  # two hosts may share the folder
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(os.urandom(KEY_BYTES))
        # Of two runs that make one at once, the first wins, and neither reads a half.
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()
    return _read(path)


def _read(path: Path) -> bytes:
    """Raises: OSError for a key that others may read, or that is none."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise OSError(0, "redact.key is readable by others; expected a regular file of mode 0600")
        data = file.read(KEY_BYTES + 1)
    if len(data) != KEY_BYTES:
        raise OSError(0, filled("redact.key is damaged; expected {0} bytes", KEY_BYTES))
    return data

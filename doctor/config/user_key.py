"""A secret of the user's own, the same in all processes of the user that share a home."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from doctor.config.paths import state_folder


def user_key(environ: Mapping[str, str]) -> str:
    """32 hexadecimal digits that no other user can read, from the state folder; empty where none can be kept there.

    For the names of folders in places where all users may write: a name that others can foresee, they can take.
    """
    folder = state_folder(environ)
    if folder is None:
        return ""
    path = folder / "key"
    try:
        return _read(path) or _make(path)
    except OSError:
        return ""


def _read(path: Path) -> str:
    """Empty where there is none yet, or where it is not this user's alone. Raises: OSError."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    try:
        about = os.fstat(file)
        if about.st_uid != os.geteuid() or about.st_mode & 0o077:
            raise OSError("not this user's alone")
        text = os.read(file, 64).decode("ascii", "replace").strip()
    finally:
        os.close(file)
    if not re.fullmatch("[0-9a-f]{32}", text):
        raise OSError("no key")
    return text


def _make(path: Path) -> str:
    """Complete from the first moment, as other processes may make it at the same time. Raises: OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".key.{secrets.token_hex(8)}")
    try:
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(file, "w") as stream:
            stream.write(secrets.token_hex(16) + "\n")
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
        return _read(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()

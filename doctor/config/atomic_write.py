"""Atomic writes of files."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path


def write_atomic(path: str | os.PathLike[str], data: bytes, mode: int = 0o600) -> None:
    """Puts ``data`` at ``path`` in one step: who reads meanwhile finds what was there before, and a full disk changes
    nothing. What is no plain file (``/dev/stderr``, a pipe, ``/dev/termination-log``) is written into as it is.

    Raises: OSError.
    """
    target = Path(path)
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(target.stat().st_mode) or os.path.ismount(target):
            with open(target, "wb", buffering=0) as file:
                file.write(data)
            return
    if target.is_symlink():
        target = target.resolve()
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), mode)
        os.replace(name, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise

"""Files and folders that decide what doctor runs or hides: whose they must be. The rule of ssh for its settings."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from doctor.engine.errors import InputError
from doctor.engine.texts import filled
from doctor.hosts.nodeset import printable_excerpt


def distrusted(status: os.stat_result, others: int = stat.S_IWGRP | stat.S_IWOTH) -> str:
    """Why not to believe it: a stranger owns it, or ``others`` (bits of its mode) may write it. Empty: believe it."""
    if status.st_uid not in (0, os.geteuid()):
        return filled("is owned by user {0}; expected you or root", status.st_uid)
    if status.st_mode & others:
        bits = "go-w" if others & stat.S_IWGRP else "o-w"
        return filled("others can write it (mode {0}); expected chmod {1}", f"{stat.S_IMODE(status.st_mode):04o}", bits)
    return ""


def require_trusted_folder(option: str, folder: Path, suffix: str) -> None:
    """A folder whose files of this suffix are run, or become commands, is no stranger's and not writable by all.

    Raises: InputError.
    """
    name = f"{option} {printable_excerpt(str(folder), 200)}"
    if not folder.is_dir():
        raise InputError(filled("{0}: not a folder", name))
    try:
        files = [folder, *(path for path in sorted(folder.iterdir()) if path.suffix == suffix)]
        reasons = {path: distrusted(path.stat(), stat.S_IWOTH) for path in files if path.exists()}
    except OSError as error:
        raise InputError(filled("{0}: {1}; expected a folder that can be read", name, error.strerror)) from None
    for path, reason in reasons.items():
        if reason:
            part = "" if path is folder else f"/{printable_excerpt(path.name, 100)}"
            raise InputError(filled("{0}{1}: {2}", name, part, reason))

"""``doctor.toml``: which one is read, and what must be so before it is believed.

It can make a sick cluster look well, so that a file which was merely found must belong to root or to who runs this, and
be writable for nobody else: the rule of ssh for ``~/.ssh/config``. A file that is named is read as it is, as with
``ssh -F``: who names it answers for it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from doctor.hosts.nodeset import quote, shown

NAME = "doctor.toml"
SYSTEM = Path("/etc/doctor") / NAME
MOST = 1 << 20
"""Bytes. More than this is not a file of settings."""


class BadSettings(Exception):
    """One line: what is wrong, where, and what was expected."""


class Settings(msgspec.Struct, frozen=True):
    """The file that holds, read; without a path there is none."""

    path: str = ""
    text: str = ""
    notes: tuple[str, ...] = ()
    """Files that could not be looked for."""


def find(named: str | Path | None, environ: Mapping[str, str], system: Path = SYSTEM) -> Settings:
    """The settings: ``named``, else DOCTOR_CONFIG, else the first of ``./doctor.toml``, the user's and the system's.

    Raises: BadSettings for a file that is there and cannot be used.
    """
    named = named or environ.get("DOCTOR_CONFIG")
    if named:
        return _taken(Path(named), found=False)
    notes: list[str] = []
    for path in (Path(NAME), *_users(environ), system):
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            notes.append(f"no settings from {shown(str(path), 200)}: {error.strerror}")
            continue
        return msgspec.structs.replace(_taken(path, found=True), notes=tuple(notes))
    return Settings(notes=tuple(notes))


def _users(environ: Mapping[str, str]) -> Iterator[Path]:
    """The user's own, where the XDG specification has it."""
    homes = (environ.get("XDG_CONFIG_HOME", ""), os.path.join(environ.get("HOME", ""), ".config"))
    home = next((one for one in homes if os.path.isabs(one)), None)
    if home:
        yield Path(home) / "doctor" / NAME


def _taken(path: Path, found: bool) -> Settings:
    name = shown(str(path), 200)
    try:
        return Settings(str(path), _read(path, name, found))
    except UnicodeDecodeError:
        why = "is not UTF-8 text"
    except (OSError, ValueError) as error:
        why = shown(getattr(error, "strerror", None) or str(error))
    raise BadSettings(f"{name}: {why}; expected settings that can be read")


def _read(path: Path, name: str, found: bool) -> str:
    # A pipe that nobody writes to must not hold up a job.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) and str(path) != os.devnull:
            raise BadSettings(f"{name}: is no plain file; expected settings, or {os.devnull} for none")
        if found:
            _believe(status, name)
        data = file.read(MOST + 1)
    if len(data) > MOST:
        raise BadSettings(f"{name}: is longer than {MOST} bytes; expected settings")
    return data.decode("utf-8")


def _believe(status: os.stat_result, name: str) -> None:
    instead = f"name it with --config to use it as it is, or --config {os.devnull} to use none"
    if status.st_uid not in (0, os.geteuid()):
        raise BadSettings(f"{name}: belongs to user {status.st_uid}; expected yourself or root: {instead}")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode = f"{stat.S_IMODE(status.st_mode):04o}"
        raise BadSettings(f"{name}: others can write it (mode {mode}); expected chmod go-w: {instead}")


def tables(settings: Settings, known: Collection[str]) -> dict[str, Any]:
    """The file's top-level tables. Raises: BadSettings when it is not TOML, or has one that is not ``known``."""
    name = shown(settings.path, 200)
    try:
        found = _toml(settings.text)
    except (ValueError, RecursionError) as error:
        raise BadSettings(f"{name}: not TOML: {shown(' '.join(str(error).split()), 200)}") from None
    for key in found:
        if key not in known:
            raise BadSettings(f"{name}: {quote(key)}: no such setting{nearest(key, known)}")
    return found


def _toml(text: str) -> dict[str, Any]:
    if not text:
        return {}
    from doctor.config.toml_compat import loads

    return loads(text)


def nearest(word: str, known: Collection[str]) -> str:
    """What to say of a word that is not known: the nearest that is."""
    import difflib

    near = difflib.get_close_matches(word[:100], known, 1)
    return f"; did you mean {near[0]}?" if near else ""

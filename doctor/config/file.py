"""``doctor.toml``: which one is read, and what must be so before it is believed; and where state is kept.

Settings can hide findings. So a file that was not named explicitly must be owned by root or the user, and must not be
writable by others: the rule of ssh for ``~/.ssh/config``. A file that is named explicitly is read as it is, as with
``ssh -F``. Folders whose files are run have the same rule.

    [history]
    keep = true          # false: no run is kept
    runs = 500           # at most so many,
    days = 90            # none older,
    mebibytes = 32       # and not more of them together
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from doctor.engine.bounded_read import read_bounded, unreadable_reason
from doctor.engine.errors import InputError, did_you_mean
from doctor.engine.sanitize import file_name, printable_excerpt, quote
from doctor.engine.texts import filled

FILE_NAME = "doctor.toml"
SYSTEM_FILE = Path("/etc/doctor") / FILE_NAME
TABLES = ("waive", "history", "notify")
"""The tables that a file may have."""
MAX_BYTES = 1 << 20
"""Bytes. More than this is not a file of settings."""


class ConfigError(Exception):
    """One line: the error, its place, and the expected value."""


class ConfigFile(msgspec.Struct, frozen=True):
    """The file that holds, read; without a path there is none."""

    path: str = ""
    text: str = ""
    notes: tuple[str, ...] = ()
    """Files whose existence could not be determined."""


def find_config(explicit: str | Path | None, environ: Mapping[str, str], system: Path = SYSTEM_FILE) -> ConfigFile:
    """The settings: ``explicit``, else DOCTOR_CONFIG, else the first of ``./doctor.toml``, the user's and the system's.

    Raises: BadSettings for a file that is there and cannot be used.
    """
    explicit = explicit or environ.get("DOCTOR_CONFIG")
    if explicit:
        return _load(Path(explicit), discovered=False)
    notes: list[str] = []
    for path in (Path(FILE_NAME), *_user_files(environ), system):
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            notes.append(filled("no settings from {0}: {1}", file_name(path), error.strerror))
            continue
        return msgspec.structs.replace(_load(path, discovered=True), notes=tuple(notes))
    return ConfigFile(notes=tuple(notes))


def _user_files(environ: Mapping[str, str]) -> Iterator[Path]:
    """The user's own, where the XDG specification has it."""
    homes = (environ.get("XDG_CONFIG_HOME", ""), os.path.join(environ.get("HOME", ""), ".config"))
    home = next((path for path in homes if os.path.isabs(path)), None)
    if home:
        yield Path(home) / "doctor" / FILE_NAME


def _load(path: Path, discovered: bool) -> ConfigFile:
    name = file_name(path)
    try:
        return ConfigFile(str(path), _read_text(path, name, discovered))
    except (OSError, ValueError) as error:
        why = unreadable_reason(error)
    raise ConfigError(filled("{0}: {1}; expected a readable settings file", name, why))


def _read_text(path: Path, name: str, discovered: bool) -> str:
    def check(status: os.stat_result) -> None:
        if discovered:
            _check_trusted(status, name)

    return read_bounded(path, MAX_BYTES, check).decode("utf-8")


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
    name = filled("{0} {1}", option, file_name(folder))
    if not folder.is_dir():
        raise InputError(filled("{0}: not a folder", name))
    try:
        files = [folder, *(path for path in sorted(folder.iterdir()) if path.suffix == suffix)]
        reasons = {path: distrusted(path.stat(), stat.S_IWOTH) for path in files if path.exists()}
    except OSError as error:
        raise InputError(filled("{0}: {1}; expected a folder that can be read", name, error.strerror)) from None
    for parent in folder.resolve().parents:
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:  # anybody can put another folder in its place
            place = file_name(parent)
            raise InputError(
                filled("{0}: others can replace it: {1} has mode {2}", name, place, f"{stat.S_IMODE(mode):04o}")
            )
    for path, reason in reasons.items():
        if reason:
            part = "" if path is folder else f"/{printable_excerpt(path.name, 100)}"
            raise InputError(filled("{0}{1}: {2}", name, part, reason))


def _check_trusted(status: os.stat_result, name: str) -> None:
    if reason := distrusted(status):
        instead = filled("pass it with --config to use it anyway, or --config {0} to use none", os.devnull)
        raise ConfigError(filled("{0}: {1}: {2}", name, reason, instead))


def read_tables(settings: ConfigFile, allowed: Collection[str]) -> dict[str, Any]:
    """The file's top-level tables. Raises: BadSettings when it is not TOML, or has one that is not ``allowed``."""
    name = printable_excerpt(settings.path, 200)
    try:
        document = _parse_toml(settings.text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            filled("{0}: not TOML: {1}", name, printable_excerpt(" ".join(str(error).split()), 200))
        ) from None
    for key in document:
        if key not in allowed:
            raise ConfigError(filled("{0}: {1}: no such setting{2}", name, quote(key), did_you_mean(key, allowed)))
    return document


def _parse_toml(text: str) -> dict[str, Any]:
    if not text:
        return {}
    from doctor.engine.toml_compat import loads

    return loads(text)


HISTORY_TABLE = "history"
HISTORY_VARIABLE = "DOCTOR_HISTORY"
OFF = ("off", "0", "no", "false")
"""Values of the variable that keep no run."""
LIMITS = {"runs": 100_000, "days": 36_500, "mebibytes": 65_536}
"""The highest value of each number; the lowest is 1."""


class HistorySettings(msgspec.Struct, frozen=True):
    """How much of the history stays."""

    keep: bool = True
    runs: int = 500
    days: int = 90
    mebibytes: int = 32
    values: bool = False
    """Each check and preflight also reads and keeps the settings and versions that `doctor changes` compares."""


def parse_history(settings: ConfigFile, environ: Mapping[str, str] | None = None) -> HistorySettings:
    """The settings of a file, which ``DOCTOR_HISTORY=off`` in ``environ`` goes before. Raises: ConfigError."""
    table = read_tables(settings, TABLES).get(HISTORY_TABLE, {})
    place = f"{printable_excerpt(settings.path, 200)}: [{HISTORY_TABLE}]"
    if not isinstance(table, dict):
        raise ConfigError(filled("{0}: expected one table", place))
    for key in table:
        if key not in HistorySettings.__struct_fields__:
            raise ConfigError(
                filled(
                    "{0}: {1}: no such key{2}", place, quote(key), did_you_mean(key, HistorySettings.__struct_fields__)
                )
            )
    parsed = HistorySettings(**{key: _value(key, value, place) for key, value in table.items()})
    off = (environ or {}).get(HISTORY_VARIABLE, "").strip().lower() in OFF
    return msgspec.structs.replace(parsed, keep=False) if off else parsed


def _value(key: str, value: Any, place: str) -> Any:
    if key in ("keep", "values"):
        if not isinstance(value, bool):
            raise ConfigError(filled("{0}: {1}: {2}; expected true or false", place, key, quote(str(value))))
    elif type(value) is not int or not 1 <= value <= LIMITS[key]:
        raise ConfigError(
            filled("{0}: {1}: {2}; expected a number from 1 to {3}", place, key, quote(str(value)), LIMITS[key])
        )
    return value


def state_folder(environ: Mapping[str, str]) -> Path | None:
    """Ours below XDG_STATE_HOME, else ``~/.local/state``; None where neither is an absolute path."""
    homes = (environ.get("XDG_STATE_HOME", ""), os.path.join(environ.get("HOME", ""), ".local", "state"))
    home = next((path for path in homes if os.path.isabs(path)), None)
    return Path(home) / "doctor" if home else None

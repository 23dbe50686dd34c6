"""``doctor.toml``: which one is read, and what must be so before it is believed.

Settings can hide findings. So a file that was not named explicitly must be owned by root or the user, and must not be
writable by others: the rule of ssh for ``~/.ssh/config``. A file that is named explicitly is read as it is, as with
``ssh -F``.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from doctor.config.trusted import distrusted
from doctor.engine.bounded_read import read_bounded
from doctor.engine.texts import filled
from doctor.hosts.nodeset import printable_excerpt, quote

FILE_NAME = "doctor.toml"
SYSTEM_FILE = Path("/etc/doctor") / FILE_NAME
TABLES = ("waive", "history")
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
            notes.append(filled("no settings from {0}: {1}", printable_excerpt(str(path), 200), error.strerror))
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
    name = printable_excerpt(str(path), 200)
    try:
        return ConfigFile(str(path), _read_text(path, name, discovered))
    except UnicodeDecodeError:
        why = "is not UTF-8 text"
    except (OSError, ValueError) as error:
        why = printable_excerpt(getattr(error, "strerror", None) or str(error))
    raise ConfigError(filled("{0}: {1}; expected a readable settings file", name, why))


def _read_text(path: Path, name: str, discovered: bool) -> str:
    def check(status: os.stat_result) -> None:
        if discovered:
            _check_trusted(status, name)

    return read_bounded(path, MAX_BYTES, check).decode("utf-8")


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


def did_you_mean(word: str, candidates: Collection[str]) -> str:
    """What to say of a word that is not known: the nearest that is."""
    import difflib

    near = difflib.get_close_matches(word[:100], candidates, 1)
    return filled("; did you mean {0}?", near[0]) if near else ""

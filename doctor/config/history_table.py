"""The ``[history]`` table of a ``doctor.toml``: whether runs are kept, and how many. Pure.

[history]
keep = true          # false: no run is kept
runs = 500           # at most so many,
days = 90            # none older,
mebibytes = 32       # and not more of them together
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from doctor.config.file import TABLES, ConfigError, ConfigFile, did_you_mean, read_tables
from doctor.engine.texts import filled
from doctor.hosts.nodeset import printable_excerpt, quote

TABLE = "history"
VARIABLE = "DOCTOR_HISTORY"
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


def parse_history(settings: ConfigFile, environ: Mapping[str, str] | None = None) -> HistorySettings:
    """The settings of a file, which ``DOCTOR_HISTORY=off`` in ``environ`` goes before. Raises: ConfigError."""
    table = read_tables(settings, TABLES).get(TABLE, {})
    place = f"{printable_excerpt(settings.path, 200)}: [{TABLE}]"
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
    off = (environ or {}).get(VARIABLE, "").strip().lower() in OFF
    return msgspec.structs.replace(parsed, keep=False) if off else parsed


def _value(key: str, value: Any, place: str) -> Any:
    if key == "keep":
        if not isinstance(value, bool):
            raise ConfigError(filled("{0}: keep: {1}; expected true or false", place, quote(str(value))))
    elif type(value) is not int or not 1 <= value <= LIMITS[key]:
        raise ConfigError(
            filled("{0}: {1}: {2}; expected a number from 1 to {3}", place, key, quote(str(value)), LIMITS[key])
        )
    return value

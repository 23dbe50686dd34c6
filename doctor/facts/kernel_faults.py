"""The table of the kernel's messages that report a fault of the host: its rows, and the words that are looked for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import msgspec

from doctor.engine.toml_compat import read_table


class KernelFaultRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of message; what the columns mean stands at the head of kernel_faults.toml."""

    id: str
    check: str
    """Empty for a message after which others are over."""
    pattern: str
    words: tuple[str, ...]
    source: str
    samples: tuple[str, ...]
    emulated: tuple[str, ...] = ()
    """Written from the format in ``source``, where no host's message was seen."""
    meaning: str = ""
    hours: int = 24
    cleared_by: str = ""
    error: bool = False
    unless: str = ""
    level: int = 7
    unlisted: bool = False


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    parts: dict[str, str]
    """What stands for a name in braces in patterns; those that name others stand before them."""
    fault: tuple[KernelFaultRow, ...]


@cache
def _table() -> _Table:
    return read_table(Path(__file__).with_suffix(".toml"), _Table)


@cache
def fault_rows() -> dict[str, KernelFaultRow]:
    """The rows by id, in the order of the file."""
    return {row.id: row for row in _table().fault}


@cache
def compiled_pattern(text: str) -> re.Pattern[str]:
    """A pattern of the table."""
    return re.compile(_filled_pattern(text))


def _filled_pattern(text: str) -> str:
    for name, part in _table().parts.items():
        text = text.replace("{" + name + "}", part)
    return text


def fault_text(name: str) -> str:
    """The pattern of the row ``name``, whose groups have no names."""
    return re.sub(r"\(\?P<\w+>", "(?:", _filled_pattern(fault_rows()[name].pattern))


def fault_pattern(name: str) -> re.Pattern[str]:
    """The pattern of the row ``name``."""
    return compiled_pattern(fault_rows()[name].pattern)


def fault_words(names: Iterable[str] = (), unlisted: bool = False) -> tuple[str, ...]:
    """One of these words is in each message of the table, or of its rows ``names``; or in those that no row names."""
    rows = fault_rows()
    kept = names or (name for name, row in rows.items() if row.unlisted == unlisted)
    return tuple(dict.fromkeys(word for name in kept for word in rows[name].words))


def named_device(match: re.Match[str]) -> str:
    """What the message is about; empty where it names nothing."""
    return next((text for name, text in match.groupdict().items() if name.startswith("device") and text), "")

"""The table of the kernel's messages that report a fault of the host: its rows, and the words that are looked for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache
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


@lru_cache(maxsize=200_000)
def rows_in(text: str) -> tuple[str, ...]:
    """The rows that find a message, by id. A message is judged once, for all checks and hosts that have it.

    >>> rows_in("nfs: server filer OK")
    ('nfs-answers',)
    """
    found: list[str] = []
    is_listed = False
    for name, row in _judging_order():
        if row.unlisted and is_listed:
            break
        if row.unlisted or any(word in text for word in row.words):
            is_found = compiled_pattern(row.pattern).search(text) is not None
            if is_found and not (row.unless and compiled_pattern(row.unless).search(text)):
                found.append(name)
                is_listed = is_listed or bool(row.check and not row.unlisted)
    return tuple(found)


@cache
def _judging_order() -> tuple[tuple[str, KernelFaultRow], ...]:
    """The rows, those for messages that no other row names last."""
    return tuple(sorted(fault_rows().items(), key=lambda item: item[1].unlisted))


@cache
def row_of_pattern(pattern: str) -> str:
    """The id of the row with this pattern, such as that of what clears another one."""
    return next(name for name, row in fault_rows().items() if row.pattern == pattern)


def named_device(match: re.Match[str]) -> str:
    """What the message is about; empty where it names nothing."""
    return next((text for name, text in match.groupdict().items() if name.startswith("device") and text), "")

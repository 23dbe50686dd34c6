"""The table of the kernel's messages that report a fault of the host: its rows, and the words that are looked for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import msgspec

from doctor.engine.toml_compat import read_table

PCI = r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
CARDS = "mlx4_core|mlx5_core|bnxt_en|ice|i40e|ixgbe|igb|igc|e1000e|hns3|hclge"
"""Drivers of network cards."""


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


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    fault: tuple[KernelFaultRow, ...]


@cache
def fault_rows() -> dict[str, KernelFaultRow]:
    """The rows by id, in the order of the file."""
    return {row.id: row for row in read_table(Path(__file__).with_suffix(".toml"), _Table).fault}


@cache
def compiled_pattern(text: str) -> re.Pattern[str]:
    """A pattern of the table."""
    return re.compile(_filled_pattern(text))


def _filled_pattern(text: str) -> str:
    return text.replace("{pci}", PCI).replace("{cards}", CARDS)


def fault_text(name: str) -> str:
    """The pattern of the row ``name``, whose groups have no names."""
    return re.sub(r"\(\?P<\w+>", "(?:", _filled_pattern(fault_rows()[name].pattern))


def fault_pattern(name: str) -> re.Pattern[str]:
    """The pattern of the row ``name``."""
    return compiled_pattern(fault_rows()[name].pattern)


def fault_words(names: Iterable[str] = ()) -> tuple[str, ...]:
    """One of these words is in each message of the table, or of its rows ``names``."""
    rows = fault_rows()
    return tuple(dict.fromkeys(word for name in names or rows for word in rows[name].words))


def named_device(match: re.Match[str]) -> str:
    """What the message is about; empty where it names nothing."""
    return next((text for name, text in match.groupdict().items() if name.startswith("device") and text), "")

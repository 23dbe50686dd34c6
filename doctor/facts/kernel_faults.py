"""The table of the kernel's messages that report a fault of the host: its rows, and the words that are looked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from typing import Literal

import msgspec

from doctor.engine.toml_compat import table_beside


class KernelFaultRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of message; what the columns mean stands at the head of kernel_faults.toml."""

    pattern: str
    source: str
    id: str = ""
    check: str = ""
    """Empty for a message after which others are over."""
    words: tuple[str, ...] = ()
    meaning: str = ""
    hours: int = 24
    cleared_by: str = ""
    unless: str = ""
    says: tuple[str, ...] = ()
    unless_says: tuple[str, ...] = ()
    level: int = 7
    unlisted: bool = False
    pci_class: str = ""
    before_start: int = 0
    one_fault: bool = False

    @property
    def demands(self) -> bool:
        """No job may start on the device before what its vendor says is done."""
        return vendor_actions()[self.id].does in ("reset", "restart", "replace")


class VendorAction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be done after messages of some rows, and who says so, or what was searched."""

    does: Literal["by code", "reset", "restart", "replace", "may restart", "repair", "configure", "ends", "none stated"]
    rows: tuple[str, ...]
    source: str


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    parts: dict[str, str]
    """What stands for a name in braces in patterns; those that name others stand before them."""
    phrases: dict[str, tuple[str, ...]]
    action: tuple[VendorAction, ...]
    fault: dict[str, dict[str, KernelFaultRow]]
    """By check, or ``clears``, and id."""


_table = table_beside(__file__, _Table)


@cache
def fault_rows() -> dict[str, KernelFaultRow]:
    """The rows by id, in the order of the file; those of kernel-error-logged, which takes what is left, the last."""
    by_check = sorted(_table().fault.items(), key=lambda item: item[0] == "kernel-error-logged")
    return {
        name: msgspec.structs.replace(row, id=name, check=check.removesuffix("clears"))
        for check, rows in by_check
        for name, row in rows.items()
    }


@cache
def vendor_actions() -> dict[str, VendorAction]:
    """What the vendor says is to be done, by the row's id.

    >>> vendor_actions()["amd-bad-pages"].does
    'replace'
    """
    return {row: action for action in _table().action for row in action.rows}


@cache
def compiled_pattern(text: str) -> re.Pattern[str]:
    """A pattern of the table."""
    return re.compile(_filled_pattern(text))


def _filled_pattern(text: str) -> str:
    for name, part in _table().parts.items():
        text = text.replace("{" + name + "}", part)
    return text


def says(name: str, text: str) -> bool:
    """A message has one of the phrases ``name``.

    >>> says("failing", "reset TIMED OUT"), says("failing", "reset done")
    (True, False)
    """
    lowered = text.lower()
    likely = [pattern for literal, pattern in _phrases(name) if literal in lowered]
    return any(pattern.search(text) for pattern in likely)


@cache
def _phrases(name: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Each phrase, behind a text that is in all it finds: a hundred texts cost what one regular expression does."""
    return tuple((_literal(phrase), re.compile(phrase, re.I)) for phrase in _table().phrases[name])


def literals(name: str) -> tuple[str, ...]:
    """One of these is in each message, in lower case, that has one of the phrases ``name``."""
    return tuple(dict.fromkeys(literal for literal, _ in _phrases(name)))


_TOKEN = re.compile(r"(\((?:[^()\\]|\\.|\((?:[^()\\]|\\.)*\))*\)|\[[^\]]{1,200}\]|\\?.)([?*+]|\{[0-9,]+\})?")


def _literal(phrase: str) -> str:
    r"""The longest text without a choice that a regular expression asks for, in lower case.

    >>> _literal(r"\bECC (?:error|status)"), _literal(r"fail\w{0,3} to (?:reset|init)"), _literal("tim(?:ed|ing)")
    ('ecc ', 'fail', 'tim')
    """
    runs = [""]
    for item, quantifier in _TOKEN.findall(phrase):
        is_plain = not quantifier and (item not in (".", "^", "$") if len(item) == 1 else not item[1].isalnum())
        if is_plain and len(item) <= 2:
            runs[-1] += item[-1]
        else:
            runs.append("")
    return max(runs, key=len).lower()


def fault_text(name: str) -> str:
    """The pattern of the row ``name``, whose groups have no names."""
    return re.sub(r"\(\?P<\w+>", "(?:", _filled_pattern(fault_rows()[name].pattern))


def fault_pattern(name: str) -> re.Pattern[str]:
    """The pattern of the row ``name``."""
    return compiled_pattern(fault_rows()[name].pattern)


def fault_words(names: Iterable[str] = (), unlisted: bool = False) -> tuple[str, ...]:
    """One of these words is in each message of the table, or of its rows ``names``; or in those that no row names.

    A row of messages at warning level and above has none of its own there: drivers' names are looked for at that level.
    """
    rows = fault_rows()
    kept = names or (name for name, row in rows.items() if row.unlisted == unlisted and (unlisted or row.level > 4))
    return tuple(dict.fromkeys(word for name in kept for word in rows[name].words))


@lru_cache(maxsize=200_000)
def rows_in(text: str) -> tuple[str, ...]:
    """The rows that find a message, by id. A message is judged once, for all checks and hosts that have it.

    >>> rows_in("nfs: server filer OK")
    ('nfs-answers',)
    """
    names = [name for word, name in _names_by_word() if word in text]
    rows = (fault_rows()[name] for name in dict.fromkeys(names))
    ids = [row.id for row in rows if compiled_pattern(row.pattern).search(text) and not _excludes(row, text)]
    return tuple(ids or _unlisted_rows_in(text))


def _unlisted_rows_in(text: str) -> Iterator[str]:
    present: dict[str, bool] = {}

    def has(phrases: str) -> bool:
        if phrases not in present:
            present[phrases] = says(phrases, text)
        return present[phrases]

    for row in fault_rows().values():
        if (
            not row.unlisted
            or not compiled_pattern(row.pattern).search(text)
            or (row.says and not any(map(has, row.says)))
        ):
            continue
        if not any(map(has, row.unless_says)) and not _excludes(row, text):
            yield row.id


def _excludes(row: KernelFaultRow, text: str) -> bool:
    return bool(row.unless and compiled_pattern(row.unless).search(text))


@cache
def _names_by_word() -> tuple[tuple[str, str], ...]:
    """Each word with the id of a row that has it, but those of messages that no other row names."""
    return tuple((word, row.id) for row in fault_rows().values() if not row.unlisted for word in row.words)


def named_device(match: re.Match[str]) -> str:
    """What the message is about; empty where it names nothing."""
    return next((text for name, text in match.groupdict().items() if name.startswith("device") and text), "")

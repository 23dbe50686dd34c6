"""The content of a report without a layout: the base of every text format."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from doctor.engine.language import localized

Details = tuple[tuple[str, str], ...]
"""Labels and texts; an empty label continues the one before."""

MAX_MESSAGE_CHARS = 2000


class ReportPart(msgspec.Struct, frozen=True):
    """One message of an entry."""

    text: str
    hosts: str = ""
    where: str = ""
    """The hosts with their share of the fleet."""
    details: Details = ()


class ReportEntry(msgspec.Struct, frozen=True):
    """The text under one status word."""

    status_word: str
    name: str
    """A check, an area, or a number of checks."""
    parts: tuple[ReportPart, ...]
    where: str = ""
    details: Details = ()
    is_claim: bool = False
    """The text is the healthy claim of the check ``name``."""
    following: Details = ()
    """Findings of other checks that follow from this one, each with its check and hosts as the label."""
    hosts: str = ""
    """The hosts without their share of the fleet."""
    unfilled: tuple[str, ...] = ()
    """Values in the commands of the fix that only the reader knows: ``<address>``."""


class ReportSection(msgspec.Struct, frozen=True):
    """Entries under a heading; without a title, lines that need none."""

    title: str
    entries: tuple[ReportEntry, ...]


class DetailLevel(msgspec.Struct, frozen=True):
    """How much detail is shown."""

    max_groups: int
    """Groups of one check that are shown."""
    max_skip_reasons: int
    """Reasons for what was skipped that are shown."""
    lists_every_check: bool
    """Every check has a line of its own, and every group its remedy."""
    names_checks: bool
    """Checks that are counted are also named."""
    max_chars: int = 0
    """Characters of a host list; 0 is no limit."""
    shortens: bool = False
    """``why`` is one sentence, equal messages are one, passed and skipped checks are one line each."""
    joins: bool = False
    """``observed`` and ``expected`` are one line."""
    max_reasons: int = 0
    """Reasons for what is unknown that are shown; 0: as many as groups."""
    max_lines: int = 0
    """Lines of one finding without what follows from it; 0 is no limit."""

    @property
    def rest_hint(self) -> str:
        """Where the rest can be seen."""
        return localized("--json has all" if self.names_checks else "-v shows all")


_Content = TypeVar("_Content")


def map_texts(content: _Content, change: Callable[[str], str]) -> _Content:
    """``content`` of a page with each of its texts changed."""
    changed: Any = content
    if isinstance(content, str):
        changed = change(content)
    elif isinstance(content, tuple):
        changed = tuple(map_texts(part, change) for part in content)
    elif isinstance(content, msgspec.Struct):
        fields = content.__struct_fields__
        changed = msgspec.structs.replace(
            content, **{name: map_texts(getattr(content, name), change) for name in fields}
        )
    return changed  # type: ignore[no-any-return]


def label_lines(label: str, lines: Iterable[str]) -> list[tuple[str, str]]:
    """Lines as details under one label."""
    return [("" if number else label, line) for number, line in enumerate(lines)]

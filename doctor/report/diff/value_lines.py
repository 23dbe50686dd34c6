"""One setting that changed, in one line. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from doctor.engine.language import localized, localized_filled, phrase
from doctor.report.diff.values import ValueChange
from doctor.report.layout.formatting import clean
from doctor.report.layout.host_names import Fleet

MAX_VALUE = 160
"""Characters of a value."""
CONTEXT = 20
"""Characters on both sides of what differs in long values."""


CATEGORIES = frozenset((
    "cards", "code", "drivers", "environment", "files", "firewall", "firmware", "interfaces", "kernel", "launch",
    "libraries", "limits", "login", "modules", "mounts", "names", "packages", "shell", "sources", "system",
))  # fmt: skip
"""Those whose names are words."""


def change_line(change: ValueChange, fleet: Fleet) -> str:
    """``sysctl net.ipv4.tcp_retries2: 15 -> 7, on all 4 hosts``."""
    subject = f"{category_name(change.category)} {clean(localized_filled(change.name), 200)}"
    where = _where(change.hosts, fleet)
    before, now = _where_they_differ(change.before, change.now)
    return f"{subject}{localized(': ')}{_value(before)} -> {_value(now)}{where}"


def _where_they_differ(before: str | None, now: str | None) -> tuple[str | None, str | None]:
    """Of long values, what is around the first and the last character that differ.

    >>> _where_they_differ("a" * 300 + "b" + "c" * 300, "a" * 300 + "d" + "c" * 300)
    ('...aaaaaaaaaaaaaaaaaaaabcccccccccccccccccccc...', '...aaaaaaaaaaaaaaaaaaaadcccccccccccccccccccc...')
    """
    if before is None or now is None or max(len(before), len(now)) <= MAX_VALUE:
        return before, now
    start = _common_length(before, now)
    end = min(_common_length(before[::-1], now[::-1]), len(before) - start, len(now) - start)
    return _part(before, start - CONTEXT, end - CONTEXT), _part(now, start - CONTEXT, end - CONTEXT)


def _common_length(before: str, now: str) -> int:
    """Characters at the beginning that both have."""
    pairs = enumerate(zip(before, now, strict=False))
    return next((place for place, (left, right) in pairs if left != right), min(len(before), len(now)))


def _part(value: str, left_out: int, left_out_at_end: int) -> str:
    start, stop = max(left_out, 0), len(value) - max(left_out_at_end, 0)
    return ("..." if start else "") + value[start:stop] + ("..." if stop < len(value) else "")


def category_name(category: str) -> str:
    """The category for people."""
    return localized(category) if category in CATEGORIES else category


def _where(hosts: Sequence[str], fleet: Fleet) -> str:
    if not hosts:
        return ""
    if len(hosts) > 1 and len(hosts) == len(fleet.hosts):
        return localized(", ") + phrase("on all {count} hosts", count=len(hosts))
    return localized(", ") + phrase("on {where}", where=fleet.where(hosts))


def _value(value: str | None) -> str:
    return localized("not there") if value is None else clean(localized_filled(value), MAX_VALUE) or localized("empty")

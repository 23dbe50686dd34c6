"""The table above the details of a report: check, hosts and message, one line for each finding. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from doctor.report.layout.formatting import count_noun, display_width
from doctor.report.layout.page_model import ReportEntry

MAX_CHECK_CELLS = 32
MAX_HOSTS_CELLS = 24
"""A longer list of hosts is a number."""
MIN_TEXT_CELLS = 20
"""Where fewer remain for the message, the columns before it shrink."""
GAP = "  "


def table_lines(entries: Sequence[ReportEntry], width: int) -> list[str]:
    """One line of at most ``width`` cells for each entry: its check, hosts and message; a long text ends with ``…``."""
    rows = [(entry.name, _hosts(entry), entry.parts[0].text if entry.parts else "") for entry in entries]
    room = width - MIN_TEXT_CELLS - 2 * len(GAP)
    checks = min(max((display_width(row[0]) for row in rows), default=0), MAX_CHECK_CELLS, max(room * 3 // 5, 8))
    hosts = min(max((display_width(row[1]) for row in rows), default=0), MAX_HOSTS_CELLS, max(room - checks, 8))
    lines = []
    for check, where, text in rows:
        head = f"{_padded(check, checks)}{GAP}{_padded(where, hosts)}{GAP if hosts else ''}"
        lines.append((head + cut(text, width - display_width(head))).rstrip())
    return lines


def cut(text: str, width: int) -> str:
    """``text`` in at most ``width`` cells.

    >>> cut("a long message", 8), cut("short", 8)
    ('a long …', 'short')
    """
    if display_width(text) <= width:
        return text
    kept = text[: max(width - 1, 0)]
    while kept and display_width(kept) > width - 1:
        kept = kept[:-1]
    return f"{kept}…"


def _hosts(entry: ReportEntry) -> str:
    names = entry.hosts or entry.where.partition(" (")[0]
    if display_width(names) <= MAX_HOSTS_CELLS and "..." not in names:
        return names
    share = entry.where.rpartition("(")[2].partition("/")[0]
    return count_noun(int(share), "host") if share.isdecimal() else cut(names, MAX_HOSTS_CELLS)


def _padded(text: str, width: int) -> str:
    cut_text = cut(text, width)
    return cut_text + " " * (width - display_width(cut_text))

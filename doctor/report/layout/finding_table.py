"""The table above the details of a report: check, hosts and message, one line for each finding. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from doctor.engine.language import is_english
from doctor.engine.output_encoding import ELLIPSIS, display_width, padded, without_signs
from doctor.report.layout.formatting import count_noun
from doctor.report.layout.page_model import ReportEntry

MAX_CHECK_CELLS = 32
MAX_HOSTS_CELLS = 24
"""A longer list of hosts is a number."""
MIN_TEXT_CELLS = 20
"""Where fewer remain for the message, the columns before it shrink."""
GAP = "  "


def table_lines(entries: Sequence[ReportEntry], width: int, ellipsis: str = "") -> list[str]:
    """One line of at most ``width`` cells for each entry: its check, hosts and message, cut with ``ellipsis``."""
    rows = [(entry.name, _hosts(entry, ellipsis), entry.parts[0].text if entry.parts else "") for entry in entries]
    room = width - MIN_TEXT_CELLS - 2 * len(GAP)
    checks = min(max((display_width(row[0]) for row in rows), default=0), MAX_CHECK_CELLS, max(room * 3 // 5, 8))
    hosts = min(max((display_width(row[1]) for row in rows), default=0), MAX_HOSTS_CELLS, max(room - checks, 8))
    lines = []
    for check, where, text in rows:
        head = f"{_padded(check, checks, ellipsis)}{GAP}{_padded(where, hosts, ellipsis)}{GAP if hosts else ''}"
        lines.append((head + cut(text, width - display_width(head), ellipsis)).rstrip())
    return lines


def cut(text: str, width: int, ellipsis: str = "") -> str:
    """``text`` in at most ``width`` cells; a longer one ends with ``ellipsis``, else with the sign of the language.

    In Chinese that is three dots: terminals draw an ellipsis in one cell or in two.

    >>> cut("a long message", 8), cut("short", 8), cut("a long message", 8, "...")
    ('a long …', 'short', 'a lon...')
    """
    if display_width(text) <= width:
        return text
    ellipsis = ellipsis or (ELLIPSIS if is_english() else without_signs(ELLIPSIS))
    room = width - display_width(ellipsis)
    kept = text[: max(room, 0)]
    while kept and display_width(kept) > room:
        kept = kept[:-1]
    return f"{kept}{ellipsis}"


def _hosts(entry: ReportEntry, ellipsis: str) -> str:
    names = entry.hosts or entry.where.partition(" (")[0]
    if display_width(names) <= MAX_HOSTS_CELLS and "..." not in names:
        return names
    share = entry.where.rpartition("(")[2].partition("/")[0]
    return count_noun(int(share), "host") if share.isdecimal() else cut(names, MAX_HOSTS_CELLS, ellipsis)


def _padded(text: str, width: int, ellipsis: str) -> str:
    return padded(cut(text, width, ellipsis), width)

"""The table above the details of a report: check, hosts and message, one line for each finding. Pure.

Also since when findings are there, in few words: ``new since 14:02 UTC``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from doctor.engine.language import is_english, localized, phrase
from doctor.engine.output_encoding import ELLIPSIS, display_width, padded, without_signs
from doctor.engine.report_parts import AgeKey, FindingAge
from doctor.report.layout.formatting import clean, count_noun, format_time
from doctor.report.layout.host_names import Fleet
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


MAX_AGE_GROUPS = 3
"""Groups of hosts with different ages that are shown."""
LABEL = "when"
"""The label of the line."""


def short_time(time: str, reference: str) -> str:
    """A time in UTC without what it shares with ``reference``: the day, and the seconds.

    >>> short_time("2026-11-21T14:02:10Z", "2026-11-21T15:00:00Z")
    '14:02 UTC'
    >>> short_time("2026-11-20T14:02:10Z", "2026-11-21T15:00:00Z")
    '2026-11-20 14:02 UTC'
    """
    day, _, clock = format_time(time).removesuffix(" UTC").partition(" ")
    if not clock:
        return clean(time, 40)
    minute = clock[:5]
    return f"{minute} UTC" if reference.startswith(day) else f"{day} {minute} UTC"


def age_text(age: FindingAge, reference: str) -> str:
    """``new since 14:02 UTC``, or ``since 3 runs (12:40 UTC)``; and how often it came, where that was not once."""
    when = short_time(age.since, reference)
    if age.state == "new":
        text = phrase("new since {time}", time=when)
    elif age.at_least:
        text = phrase("for {runs} runs (since {time} or before)", runs=age.runs, time=when)
    else:
        text = phrase("for {runs} runs (since {time})", runs=age.runs, time=when)
    return text + phrase(", came {times} times", times=age.times) if age.times > 1 else text


def age_line(check: str, hosts: Iterable[str], ages: Mapping[AgeKey, FindingAge], fleet: Fleet, reference: str) -> str:
    """The ages of one check's findings on ``hosts``; empty where nothing is known. ``reference``: the run's start."""
    by_text: dict[str, list[str]] = {}
    all_hosts = tuple(dict.fromkeys(hosts)) or ("",)
    for host in all_hosts:
        age = ages.get((check, host))
        by_text.setdefault(age_text(age, reference) if age else "", []).append(host)
    unknown = by_text.pop("", [])
    if not by_text:
        return ""
    if len(by_text) == 1 and not unknown:
        return next(iter(by_text))
    groups = [f"{fleet.fold(fleet.ordered(named))}{localized(': ')}{text}" for text, named in by_text.items()]
    rest = len(groups) - MAX_AGE_GROUPS
    more = [phrase("... and {count} more", count=rest)] if rest > 0 else []
    return localized("; ").join([*groups[:MAX_AGE_GROUPS], *more])

"""Since when findings are there, in few words: ``new since 14:02 UTC``. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from doctor.engine.language import localized, phrase
from doctor.engine.report_parts import AgeKey, FindingAge
from doctor.report.layout.formatting import clean, format_time
from doctor.report.layout.host_names import Fleet

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

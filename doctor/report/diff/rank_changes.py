"""Which of many changes comes first: what a failing check reads, then what may be its cause, then the rest. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

from doctor.engine.check import Check
from doctor.engine.result import Report
from doctor.facts.kernel import sysctl_path
from doctor.facts.settings import reading_facts
from doctor.report.diff.values import ValueChange

ORDER = (
    *("code", "launch", "environment", "shell", "python", "libraries", "sources", "drivers", "firmware", "modules"),
    *("devices", "system", "names", "login", "limits", "kernel", "files", "interfaces", "cards", "firewall"),
    *("mounts", "sysctl", "packages"),
)
"""Categories, nearest to the job first: what is left where no check speaks for one change more than for another."""


class RankedChange(NamedTuple):
    """A change, and what speaks for it."""

    change: ValueChange
    reason: str
    """One of `REASONS`."""
    checks: tuple[str, ...]
    """Those that read the value: of the failing ones, else of those that may be their cause, else of all."""
    messages: int
    """So many known log messages name a check that reads the value."""


REASONS = ("failing", "cause", "message", "")
"""A failing check reads it; a check that may be the cause of a failing one reads it; a check that explains messages of
logs reads it; none of these."""

FINDINGS = 2
"""So many of the reasons are about what was found now; behind them the nearest to the job comes first."""


def rank_changes(
    changes: Sequence[ValueChange], report: Report, checks: Sequence[Check], messages: Mapping[str, int]
) -> tuple[RankedChange, ...]:
    """The changes, the likeliest first. ``messages``: how many messages of logs each check explains."""
    failing = {
        outcome.check: {host for finding in outcome.findings for host in finding.hosts or ("",)}
        for outcome in report.outcomes
        if outcome.findings and outcome.check != "host-snapshot-differs"
    }
    causes = {name for check in checks if check.name in failing for name in (*check.follows_from, *check.explained_by)}
    ranked = [_rank(change, checks, failing, causes, messages) for change in changes]
    return tuple(sorted(ranked, key=lambda entry: _key(entry, failing)))


def _rank(
    change: ValueChange,
    checks: Sequence[Check],
    failing: Mapping[str, set[str]],
    causes: set[str],
    messages: Mapping[str, int],
) -> RankedChange:
    reading = [check.name for check in checks if reads(check, change)]
    count = sum(messages.get(name, 0) for name in reading)
    for reason, names in (("failing", set(failing)), ("cause", causes)):
        chosen = tuple(name for name in reading if name in names)
        if chosen:
            return RankedChange(change, reason, chosen, count)
    return RankedChange(change, "message" if count else "", tuple(reading), count)


def _key(ranked: RankedChange, failing: Mapping[str, set[str]]) -> tuple[object, ...]:
    change = ranked.change
    blamed = set().union(*(failing.get(name, set()) for name in ranked.checks)) if ranked.checks else set()
    elsewhere = bool(change.hosts and blamed and "" not in blamed and not blamed & set(change.hosts))
    category = ORDER.index(change.category) if change.category in ORDER else len(ORDER)
    parts = change.name.count(".") if change.category == "sysctl" else 0  # ip_forward sets conf.all.forwarding
    return min(REASONS.index(ranked.reason), FINDINGS), elsewhere, category, -ranked.messages, parts, change


def reads(check: Check, change: ValueChange) -> bool:
    """The check's rule depends on the value: one of its facts holds it, or its page is about it by name."""
    category, name = change.category, change.name
    if category == "sysctl":
        return any(sysctl_path(name) in fact.probe.paths for fact in check.facts) or _names(check.doc, name)
    if category in ("environment", "shell", "modules", "files", "packages", "libraries", "login", "kernel", "names"):
        return _names(check.doc, name)
    if not check.facts & reading_facts(category, name):
        return False
    return category != "system" or any(_names(check.doc, word) for word in name.split())


def _names(page: str, name: str) -> bool:
    return len(name) > 3 and bool(_word(name).search(page))


@cache
def _word(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", re.I)

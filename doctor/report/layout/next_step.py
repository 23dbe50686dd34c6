"""What to do first, in a few lines: what a job's log shows below the one line of the verdict. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from doctor.report.layout.failures import failing
from doctor.report.layout.fold import Folded, fold
from doctor.report.layout.formatting import clean, count
from doctor.report.layout.page_model import Entry, Scope

if TYPE_CHECKING:
    from doctor.engine.check import Check
    from doctor.engine.result import Report

BRIEF = Scope(1, 1, each=False, names=False, longest=80)
LONGEST = 400
"""Characters of one line."""


def advice(report: Report, pages: Mapping[str, Check], limit: int = 5) -> list[str]:
    """At most ``limit`` lines, the last of which counts what is left: errors with the beginning of their remedy, root
    causes first; where there are none, warnings; else what is unknown, and why.
    """
    folded = fold(report, BRIEF.longest)
    failures = [one for area in folded.areas for one in area.failures]
    failures = [one for one in failures if one.is_error] or failures
    failures.sort(key=lambda one: -len(one.hides))
    lines = [_failure(failing(one, pages.get(one.outcome.check), BRIEF, folded.fleet)) for one in failures]
    lines = lines or _unknown(folded)
    if len(lines) > limit:
        lines = [*lines[: limit - 1], f"... and {count(len(lines) - limit + 1, 'more line')} like these"]
    return lines


def _failure(entry: Entry) -> str:
    fix = next((text for label, text in (*entry.parts[0].details, *entry.details) if label == "fix"), "")
    where = entry.where
    head = f"{entry.word} {entry.name}{' on ' if where else ''}{where}: {clean(entry.parts[0].text, LONGEST // 2)}"
    return clean(f"{head.rstrip('.')}. Fix: {fix}" if fix else head, LONGEST)


def _unknown(folded: Folded) -> list[str]:
    crashed = [one for area in folded.areas for one in area.crashed]
    lines = [f"crash {one.check}: the check itself broke, please report it" for one in crashed]
    for gap in folded.unknown:
        name = gap.checks[0] if len(gap.checks) == 1 else count(len(gap.checks), "check")
        where = folded.fleet.where(gap.hosts)
        lines.append(clean(f"unknown {name}{' on ' if where else ''}{where}: {clean(gap.reason)}", LONGEST))
    return lines

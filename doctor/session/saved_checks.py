"""Which checks a saved run can be judged by: decided once, for `doctor check --from` and `doctor report`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from doctor.engine.check_files import ROUND_AREAS
from doctor.engine.texts import filled, joined

if TYPE_CHECKING:
    from doctor.engine.check import Check
    from doctor.engine.fact import Fact
    from doctor.engine.record import Run
    from doctor.engine.result import Report

MAX_FACTS = 6
"""Facts that a note names."""


def checks_of_run(run: Run, checks: Iterable[Check]) -> list[Check]:
    """The checks that the run was made for, or whose facts were collected.

    A check that is newer than the run needs facts that were not read, and says nothing of its hosts.
    """
    return [check for check in checks if _was_requested(run, check)]


def with_note(report: Report, run: Run, omitted: Sequence[Check]) -> Report:
    """The report with one line about the checks that are not judged, and the facts that were not collected for them."""
    omitted = [check for check in omitted if check.area not in ROUND_AREAS]
    if not omitted:
        return report
    note = filled("not judged, since this run was recorded without: {0} checks", len(omitted))
    collected = {name for record in run.hosts.values() for name in record.outputs}
    facts = {fact.output_name() for check in omitted for fact in _first_round(check.facts)} - collected
    if facts and len(facts) <= MAX_FACTS:
        note = filled("{0}; not collected: {1}", note, joined(", ", sorted(facts)))
    elif facts:
        note = filled("{0}; {1} of their facts were not collected", note, len(facts))
    return msgspec.structs.replace(report, notes=(*report.notes, note))


def _was_requested(run: Run, check: Check) -> bool:
    """If the run does not record it and no host answered anything, every check is kept, and becomes unknown."""
    if run.checks:
        return check.name in run.checks
    if check.area == "smoke":
        return bool(run.smoke)
    if check.area == "network":
        return run.tried_network
    answered = [record for record in run.hosts.values() if record.outputs and not record.visit.failure]
    names = {fact.__name__ for fact in _first_round(check.facts)}
    return not answered or all(any(name in record.outputs for record in answered) for name in names)


def _first_round(facts: Iterable[type[Fact]]) -> Iterator[type[Fact]]:
    """The facts of the first round that these facts need."""
    for fact in facts:
        if fact.needs:
            yield from _first_round(fact.needs)
        elif fact.probe.kind not in ("visit", "smoke"):
            yield fact

"""What came of every check on every host: a letter for each, and the words for what is not as it should be. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from doctor.engine.language import localized, localized_filled, phrase
from doctor.engine.result import Outcome, Report, Severity
from doctor.engine.sanitize import number_ranges
from doctor.report.layout.fold import sort_by_area
from doctor.report.layout.formatting import clean, run_lengths
from doctor.report.layout.group_findings import grouped
from doctor.report.layout.host_names import Fleet
from doctor.report.layout.tally import RootCauses

MAX_NOTE_CHARS = 300
MAX_NOTES_CHARS = 120_000
"""Characters of all notes together; what is beyond stands in the JSON report."""
JOB = "(the job itself)"

STATES = {
    "E": "error",
    "w": "warning",
    "c": "crashed",
    "u": "unknown",
    "h": "unknown, as a consequence",
    "v": "waived",
    "p": "passed",
    "s": "does not apply",
    ".": "not checked",
}
"""The letters of the grid, worst first."""


def check_grid(report: Report, fleet: Fleet) -> dict[str, object]:
    """``hosts`` and ``checks`` are the names of rows and columns, ``cells`` has a text of runs for each check.

    The first row is that of the job itself where a check says something of it; the last rows are hosts that a finding
    names and that are not of this run. A note is the number of its check, a text, and the rows it holds for.
    """
    outcomes = sort_by_area(report.outcomes)
    rows = _rows(outcomes, fleet)
    places = {host: number for number, host in enumerate(rows)}
    causes = RootCauses(outcomes)
    areas = list(dict.fromkeys(outcome.area for outcome in outcomes))
    notes: list[list[Any]] = []
    room = MAX_NOTES_CHARS
    for number, outcome in enumerate(outcomes):
        for text, hosts in _notes(outcome, fleet):
            numbers = number_ranges(sorted({places[host] for host in hosts}))
            room -= len(text) + len(numbers)
            if room >= 0:
                notes.append([number, text, numbers])
    return {
        "states": {letter: localized(text) for letter, text in STATES.items()},
        "hosts": [clean(host, 100) or localized(JOB) for host in rows],
        "job": rows[:1] == [""],
        "foreign": sum(host not in fleet.positions for host in rows if host),
        "areas": [clean(localized(area), 100) for area in areas],
        "checks": [[clean(outcome.check, 100), areas.index(outcome.area)] for outcome in outcomes],
        "cells": [run_lengths(_letters(outcome, places, causes)) for outcome in outcomes],
        "notes": notes,
        "cut": room < 0,
    }


def _rows(outcomes: Sequence[Outcome], fleet: Fleet) -> list[str]:
    named = {host for outcome in outcomes for host, _ in _marks(outcome)}
    return [*([""] if "" in named else []), *fleet.hosts, *fleet.ordered(named - set(fleet.hosts))]


def _marks(outcome: Outcome) -> Iterator[tuple[str, str]]:
    """Hosts and letters, the worst of a host last; the empty name is the job itself."""
    yield from ((host, "s") for host in outcome.skipped)
    yield from ((host, "p") for host in outcome.evaluated_hosts)
    if outcome.complete and not outcome.evaluated_hosts:
        yield "", "p"
    yield from ((host, "v") for waived in outcome.waived for host in waived.finding.hosts or ("",))
    yield from ((host, "u") for host in outcome.unknown)
    yield from ((host, "c") for host in outcome.crashed)
    for severity, letter in ((Severity.WARNING, "w"), (Severity.ERROR, "E")):
        for finding in outcome.findings:
            if outcome.severity_of(finding) is severity:
                yield from ((host, letter) for host in finding.hosts or ("",))


def _letters(outcome: Outcome, places: dict[str, int], causes: RootCauses) -> str:
    unexplained = causes.unexplained(outcome)
    nowhere = "" in outcome.skipped and not outcome.evaluated_hosts
    letters = ["s" if nowhere else "."] * len(places)
    for host, letter in _marks(outcome):
        letters[places[host]] = "h" if letter == "u" and host not in unexplained else letter
    return "".join(letters)


def _notes(outcome: Outcome, fleet: Fleet) -> Iterator[tuple[str, Sequence[str]]]:
    """What a finding says, or why there is no answer; a note holds for all its hosts."""
    for group in grouped(outcome.findings, fleet):
        yield fleet.message(group.finding, MAX_NOTE_CHARS), group.hosts or ("",)
    for waived in outcome.waived:
        waiver = clean(phrase("{reason} (until {date})", reason=waived.reason, date=waived.until), MAX_NOTE_CHARS)
        yield phrase("waived: {text}", text=waiver), waived.finding.hosts or ("",)
    reasons: dict[str, list[str]] = {}
    for host, reason in outcome.unknown.items():
        reasons.setdefault(clean(localized_filled(reason.text), MAX_NOTE_CHARS), []).append(host)
    for host, why in outcome.skipped.items():
        reasons.setdefault(clean(localized_filled(why), MAX_NOTE_CHARS), []).append(host)
    for host, trace in outcome.crashed.items():
        lines = [line for line in trace.splitlines() if line.strip()] or [localized("no traceback")]
        reasons.setdefault(phrase("crashed: {text}", text=clean(lines[-1], MAX_NOTE_CHARS)), []).append(host)
    yield from reasons.items()

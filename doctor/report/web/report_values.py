"""A report as the values of its HTML page: what the terminal shows with ``-v``, and what only a drawing can show."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from doctor import __version__
from doctor.engine.check import Check
from doctor.engine.grouping import lists_by_key
from doctor.engine.language import localized, phrase
from doctor.engine.quantities import number_text
from doctor.engine.result import Outcome, Report, Severity
from doctor.engine.sanitize import number_ranges
from doctor.engine.smoke_summary import Failure, SmokeSummary
from doctor.report.layout.fold import sort_by_area
from doctor.report.layout.formatting import STYLES, clean, count_noun, run_lengths, translated
from doctor.report.layout.group_findings import grouped
from doctor.report.layout.host_names import Fleet
from doctor.report.layout.page import build_page
from doctor.report.layout.page_model import DetailLevel, Details, ReportSection
from doctor.report.layout.smoke_section import culprits_in_words, failure_text, ranks_in_words
from doctor.report.layout.tally import RootCauses, tally
from doctor.report.web.loss_chart import learning_chart, training_chart, watched_chart
from doctor.report.web.path_maps import network_map, pair_map

LEVEL = DetailLevel(50, 200, lists_every_check=True, names_checks=True, max_chars=2000)
MAX_MESSAGES, MIN_MESSAGES = 600, 5
"""Messages of all findings together, and of one finding however many there are: a page of 100,000 elements is slow."""
MAX_STACK_LINES = 100
MAX_STACKS = 64
"""Stacks of one failure."""
MAX_STACK_CHARS = 100_000
"""Characters of all stacks together."""
_ITEM = re.compile(r"(?:[-*]|\d+[.)]) ")
_TITLES = {"unknown": "Unknown", "waived": "Waived", "not checked": "Not checked"}


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
    reasons = lists_by_key((translated(reason.text, MAX_NOTE_CHARS), host) for host, reason in outcome.unknown.items())
    for host, why in outcome.skipped.items():
        reasons.setdefault(translated(why, MAX_NOTE_CHARS), []).append(host)
    for host, trace in outcome.crashed.items():
        lines = [line for line in trace.splitlines() if line.strip()] or [localized("no traceback")]
        reasons.setdefault(phrase("crashed: {text}", text=clean(lines[-1], MAX_NOTE_CHARS)), []).append(host)
    yield from reasons.items()


class Line(msgspec.Struct, frozen=True):
    """One line of a detail: ``text``, an ``item`` of a list, or ``code`` that stands alone."""

    kind: str
    text: str


class Detail(msgspec.Struct, frozen=True):
    """The lines under one label."""

    label: str
    lines: tuple[Line, ...]


class FailureView(msgspec.Struct, frozen=True):
    """What stopped a smoke run."""

    title: str
    timeline: Timeline | None
    stacks: tuple[tuple[str, str], ...]
    """Ranks that have one and the same stack, and its lines."""
    hidden_stacks: int


def report_values(report: Report, checks: Mapping[str, Check], code: int, fixable: Collection[str]) -> dict[str, Any]:
    """The values of the template ``report.html.jinja``, and ``data`` for its script."""
    page = build_page(report, checks, _level(report), code, fixable)
    fleet = Fleet(report.hosts, LEVEL.max_chars)
    sections = {section.title: section for section in page.sections}
    findings = sections.pop("findings", ReportSection("findings", ()))
    data: dict[str, Any] = {"grid": check_grid(report, fleet) if report.outcomes else None, "maps": {}}
    net_lines: Sequence[str] = ()
    net: dict[str, Any] | None = None
    if report.net is not None:
        tested = report.net
        net = {"mode": clean(tested.mode, 60), "coverage": clean(tested.coverage), "has_speeds": bool(tested.speeds)}
        data["maps"]["net"] = network_map(report.net, report.hosts)
        net_lines = page.net
    smoke = _smoke_values(report.smoke, report, page.smoke) if report.smoke or report.losses else None
    if report.smoke and (pairs := pair_map(report.smoke)):
        data["maps"]["pairs"] = pairs
    return {
        "version": __version__,
        "exit_code": int(code),
        "summary": page.summary,
        "verdict_style": STYLES[page.summary.status_word],
        "styles": STYLES,
        "grouped": grouped_details,
        "counts": tally(report),
        "findings": findings.entries,
        "sections": [sections.pop(title) for title in ("unknown",) if title in sections],
        "folded_sections": _folded_sections(list(sections.values())),
        "net": net,
        "net_lines": net_lines,
        "smoke": smoke,
        "data": data,
    }


def _level(report: Report) -> DetailLevel:
    """The more checks have findings, the fewer messages of each are shown."""
    failing = sum(bool(outcome.findings) for outcome in report.outcomes)
    share = max(MIN_MESSAGES, MAX_MESSAGES // max(failing, 1))
    return msgspec.structs.replace(LEVEL, max_groups=min(LEVEL.max_groups, share), max_reasons=LEVEL.max_groups)


def _folded_sections(sections: Iterable[ReportSection]) -> list[ReportSection]:
    """What is collapsed: one part for each area of checks that passed, what is waived, what was not checked."""
    named = [msgspec.structs.replace(section, title=_title(section.title)) for section in sections if section.entries]
    return sorted(named, key=lambda section: section.title.startswith(localized("Passed")))


def _title(name: str) -> str:
    if name in _TITLES:
        return localized(_TITLES[name])
    return phrase("Passed: {area}", area=localized(name)) if name else localized("Passed")


def grouped_details(details: Details) -> tuple[Detail, ...]:
    """Lines under their labels; an empty label continues the one before."""
    labelled: list[tuple[str, list[Line]]] = []
    for label, text in details:
        if label or not labelled:
            labelled.append((label, []))
        lines = labelled[-1][1]
        if text.startswith("  ") or labelled[-1][0] == "evidence":
            code = text.removeprefix("  ")
            if lines and lines[-1].kind == "code":
                lines[-1] = Line("code", f"{lines[-1].text}\n{code}")
            else:
                lines.append(Line("code", code))
        else:
            lines.append(Line("item" if _ITEM.match(text) else "text", text))
    return tuple(Detail(label, tuple(lines)) for label, lines in labelled)


def _smoke_values(summary: SmokeSummary | None, report: Report, lines: Details) -> dict[str, object]:
    failures = tuple(map(_failure, summary.failures)) if summary else ()
    sections = {"stack"} if any(failure.stacks for failure in failures) else set()
    unindented = tuple((label, text.strip()) for label, text in lines)  # indented for the eye alone
    return {
        "details": [detail for detail in grouped_details(unindented) if detail.label not in sections],
        "watched": bool(report.losses) or summary is None or summary.watched,
        "losses": watched_chart(report.losses),
        "training": training_chart(summary) if summary else None,
        "learning": learning_chart(summary) if summary else None,
        "failures": failures,
        "has_pairs": bool(summary and summary.pair_speeds),
    }


def _failure(failure: Failure) -> FailureView:
    culprits = culprits_in_words(failure)
    ranks_by_stack: dict[str, list[int]] = {}
    for rank, text in sorted(failure.stacks.items(), key=lambda item: (item[0] not in failure.culprit_ranks, item[0])):
        ranks_by_stack.setdefault(_stack(text), []).append(rank)
    stacks: list[tuple[str, str]] = []
    room = MAX_STACK_CHARS
    for stack, ranks in ranks_by_stack.items():
        room -= len(stack)
        if room >= 0 and len(stacks) < MAX_STACKS:
            stacks.append((ranks_in_words(ranks), stack))
    return FailureView(
        f"{culprits} {failure_text(failure)}", hang_timeline(failure), tuple(stacks), len(ranks_by_stack) - len(stacks)
    )


def _stack(text: str) -> str:
    lines = [
        "  " * line.startswith((" ", "\t")) + clean(line, 200)
        for line in text[:MAX_STACK_CHARS].splitlines()
        if line.strip()
    ]
    more = [f"... {count_noun(len(lines) - MAX_STACK_LINES, 'more line')}"] if len(lines) > MAX_STACK_LINES else []
    return "\n".join([*lines[:MAX_STACK_LINES], *more])


MAX_ROWS = 40
WIDTH, ROW_HEIGHT = 640, 26
AXIS_HEIGHT = 28


class TimelineRow(msgspec.Struct, frozen=True):
    """Ranks in one call; the first of them entered it ``longest`` seconds before the verdict."""

    ranks: str
    call: str
    is_culprit: bool
    longest: float
    shortest: float
    start: float
    """Left end of the bar."""
    entries: tuple[float, ...]
    """Where on the axis each rank entered."""
    top: float


class Timeline(msgspec.Struct, frozen=True):
    """The rows from the earliest entry to the verdict."""

    rows: tuple[TimelineRow, ...]
    hidden: int
    """Rows that are not drawn."""
    seconds: float
    ticks: tuple[tuple[float, str], ...]
    height: float


def hang_timeline(failure: Failure) -> Timeline | None:
    """None where the failure does not tell since when its ranks were where they were."""
    groups: dict[tuple[bool, str], list[int]] = {}
    ages_by_rank = {rank: min(max(age, 0.0), 1e9) for rank, age in failure.ages.items() if math.isfinite(age)}
    for rank in sorted(ages_by_rank):
        key = (rank in failure.culprit_ranks, failure.calls.get(rank) or failure.states.get(rank, ""))
        groups.setdefault(key, []).append(rank)
    if not groups:
        return None
    seconds = max(*ages_by_rank.values(), 0.001)

    def across(age: float) -> float:
        return round(WIDTH * (1 - age / seconds), 1)

    ordered = sorted(groups.items(), key=lambda item: (not item[0][0], -max(ages_by_rank[rank] for rank in item[1])))
    rows = []
    for number, ((is_culprit, call), ranks) in enumerate(ordered[:MAX_ROWS]):
        ages = [ages_by_rank[rank] for rank in ranks]
        entries = tuple(sorted({across(age) for age in ages}))
        does = clean(call, 200) or localized("no call is known")
        ends = (max(ages), min(ages))
        rows.append(
            TimelineRow(ranks_in_words(ranks), does, is_culprit, *ends, entries[0], entries[:200], number * ROW_HEIGHT)
        )
    ticks = tuple((across(seconds * part / 4), _before(seconds * part / 4)) for part in range(5))
    return Timeline(tuple(rows), len(ordered) - len(rows), seconds, ticks, len(rows) * ROW_HEIGHT + AXIS_HEIGHT)


def _before(seconds: float) -> str:
    return f"-{number_text(seconds)} s" if seconds else localized("verdict")

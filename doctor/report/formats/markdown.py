"""The report as a ticket: Markdown to paste into an issue tracker.

What hosts and files say stands in code alone, between more backquotes than it holds itself, one line each: it cannot
become a link, an image, a mention, a heading or HTML.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from doctor.report.layout.failures import failing
from doctor.report.layout.fold import Failure, Folded, fold
from doctor.report.layout.formatting import clean, count, duration, moment
from doctor.report.layout.host_health import unknown_hosts
from doctor.report.layout.page import compose
from doctor.report.layout.page_model import Entry, Scope
from doctor.report.layout.summary_lines import closing

if TYPE_CHECKING:
    from doctor.engine.check import Check
    from doctor.engine.result import Report

SCOPE = Scope(50, 50, each=True, names=True, longest=400)
ROWS = 50
"""Hosts, or sets of hosts, in the table."""


def render(report: Report, pages: Mapping[str, Check], code: int) -> str:
    """The ticket; ``code`` is the exit code that it comes with."""
    folded = fold(report, SCOPE.longest)
    end = closing(report, folded, code)
    failures = [one for area in folded.areas for one in area.failures]
    failures.sort(key=lambda one: (-len(one.hides), not one.is_error))
    lines = [f"# doctor: {end.verdict}", "", _from(report, code), ""]
    lines += [*_table(report, folded, failures)]
    for one in failures:
        lines += _failure(one, pages, folded)
    lines += _sections(report, pages, code)
    lines += _notes(report)
    lines += _again(report, failures)
    return "\n".join(lines).rstrip("\n") + "\n"


def code_span(text: str, limit: int = 400) -> str:
    """``text`` as code within a line: between more backquotes than stand in a row in it."""
    shown = clean(text, limit) or "-"
    fence = "`" * (1 + _longest_run(shown))
    return f"{fence} {shown} {fence}" if "`" in shown else f"{fence}{shown}{fence}"


def fenced(lines: Iterable[str]) -> list[str]:
    """``lines`` as a block of code."""
    shown = [" " * (len(line) - len(line.lstrip(" "))) + clean(line, 4000) for line in lines]
    fence = "`" * max(3, 1 + max(map(_longest_run, shown), default=0))
    return [f"{fence}text", *shown, fence, ""]


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


def _cell(text: str) -> str:
    """Code in a table: a pipe would part two cells."""
    return code_span(text.replace("|", "¦"))


def _from(report: Report, code: int) -> str:
    when = f", {moment(report.started)}" if re.match(r"[0-9T:.Z+-]+\Z", report.started) else ""
    return f"{code_span(report.source)}{when}, {duration(report.seconds)}, exit code {int(code)}."


def _table(report: Report, folded: Folded, failures: Sequence[Failure]) -> Iterator[str]:
    """Hosts by what is wrong with them."""
    checks: dict[str, list[str]] = {}
    for one in failures:
        for host in one.hosts:
            checks.setdefault(host, []).append(one.outcome.check)
    dark = unknown_hosts(report)
    rows: dict[tuple[tuple[str, ...], int], list[str]] = {}
    for host in folded.fleet.ordered((*checks, *dark)):
        rows.setdefault((tuple(checks.get(host, ())), len(dark.get(host, ()))), []).append(host)
    if not rows:
        return
    yield from ("| hosts | found by | not known |", "|---|---|---|")
    for (names, unknown), hosts in list(rows.items())[:ROWS]:
        found = ", ".join(map(_cell, names)) or "-"
        yield f"| {_cell(folded.fleet.where(hosts))} | {found} | {count(unknown, 'check') if unknown else '-'} |"
    yield ""
    if len(rows) > ROWS:
        yield from (f"... and {count(len(rows) - ROWS, 'row')} more.", "")


def _failure(failure: Failure, pages: Mapping[str, Check], folded: Folded) -> Iterator[str]:
    outcome = failure.outcome
    entry = failing(failure, pages.get(outcome.check), SCOPE, folded.fleet)
    where = f" on {code_span(entry.where)}" if entry.where else ""
    yield from (f"## {outcome.severity.value}: {code_span(outcome.check)}{where}", "")
    yield from (f"When all is well: {code_span(outcome.claim)}", "")
    yield from fenced(_evidence(entry))
    fix = [*_labelled(entry, "fix")]
    if fix:
        yield from ("What to do:", "", *fenced(fix))


def _evidence(entry: Entry) -> Iterator[str]:
    for part in entry.parts:
        yield f"{part.hosts}: {part.text}" if part.hosts else part.text
        yield from (f"    {label}: {text}" if label else f"      {text}" for label, text in part.details)
    yield from (f"{label}: {text}" for label, text in entry.details if label in ("saw", "want", "hides"))


def _labelled(entry: Entry, wanted: str) -> Iterator[str]:
    label = ""
    for name, text in entry.details:
        label = name or label
        if label == wanted:
            yield text


def _sections(report: Report, pages: Mapping[str, Check], code: int) -> Iterator[str]:
    """What crashed, what is waived, what is not known, what was not looked at, and the smoke run."""
    page = compose(report, pages, SCOPE, code)
    found: dict[str, list[str]] = {}
    for section in page.sections:
        for entry in section.entries:
            title = section.title if section.title in ("not known", "not looked at") else ""
            title = title or {"crash": "crashed", "waived": "waived"}.get(entry.word, "")
            if title:
                found.setdefault(title, []).extend(_told(entry))
    if page.smoke:
        found["smoke run"] = [f"{label}: {text}" if label else f"  {text}" for label, text in page.smoke]
    for title, lines in found.items():
        yield from (f"## {title.capitalize()}", "", *fenced(lines))


def _told(entry: Entry) -> Iterator[str]:
    for part in entry.parts:
        where = part.where or entry.where
        head = " on ".join(word for word in (entry.name, where) if word)
        yield f"{head}: {part.text}" if head else part.text
        yield from (f"    {label}: {text}" if label else f"      {text}" for label, text in part.details)
    yield from (f"    {label}: {text}" if label else f"      {text}" for label, text in entry.details)


def _notes(report: Report) -> list[str]:
    return ["## Notes", "", *(f"- {code_span(one, 1000)}" for one in report.notes), ""] if report.notes else []


def _again(report: Report, failures: Sequence[Failure]) -> Iterator[str]:
    """Commands that show more, and that look again."""
    yield from ("## To look again", "")
    names = list(dict.fromkeys(one.outcome.check for one in failures))[:5]
    alone = report.source.startswith("this host alone")
    hosts = shlex.quote(clean(",".join(_some(report, failures)), 4000)) if report.hosts and not alone else ""
    chosen = "".join(f" --select {shlex.quote(clean(name))}" for name in names)
    explain = [f"doctor explain {shlex.quote(clean(name))}" for name in names]
    yield from fenced([*explain, f"doctor check{chosen}{' ' if hosts else ''}{hosts}"])


def _some(report: Report, failures: Sequence[Failure]) -> list[str]:
    """The hosts to look at again, folded: those that are to blame, or all."""
    from doctor.report.layout.host_names import Fleet

    fleet = Fleet(report.hosts)
    blamed = fleet.ordered(host for one in failures for host in one.hosts if host in fleet.place)
    return [fleet.fold(blamed or report.hosts)]

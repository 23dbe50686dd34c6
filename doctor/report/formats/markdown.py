"""The report as a ticket: Markdown to paste into an issue tracker.

What hosts and files say stands in code alone, between more backquotes than it holds itself, one line each: it cannot
become a link, an image, a mention, a heading or HTML.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from doctor.engine.check import Check
from doctor.engine.language import localized, localized_filled, phrase
from doctor.engine.result import THIS_HOST_ALONE, Report
from doctor.engine.texts import filled
from doctor.report.formats.registry import RenderContext
from doctor.report.layout.failures import failure_entry
from doctor.report.layout.fold import CheckFailure, FoldedReport, fold
from doctor.report.layout.formatting import clean, count_noun, duration, format_time
from doctor.report.layout.host_health import unknown_hosts
from doctor.report.layout.host_names import Fleet
from doctor.report.layout.page import build_page
from doctor.report.layout.page_model import DetailLevel, ReportEntry
from doctor.report.layout.summary_lines import summary_lines

SCOPE = DetailLevel(50, 50, lists_every_check=True, names_checks=True, max_chars=400)
MAX_ROWS = 50
"""Hosts, or sets of hosts, in the table."""


def render(report: Report, context: RenderContext) -> str:
    """The ticket."""
    pages, code = context.checks_by_name, context.code
    folded = fold(report, SCOPE.max_chars)
    summary = summary_lines(report, folded, code)
    failures = folded.failures
    lines = [filled("# doctor: {0}", code_span(summary.verdict, 1000)), "", _source_line(report, code), ""]
    lines += [*_table(report, folded, failures)]
    for check_failure in failures:
        lines += _failure(check_failure, pages, folded)
    lines += _sections(report, pages, code)
    lines += _notes(report)
    lines += _follow_up_commands(report, failures, pages)
    return "\n".join(lines).rstrip("\n") + "\n"


def code_span(text: str, limit: int = 400) -> str:
    """``text`` as code within a line: between more backquotes than stand in a row in it."""
    cleaned = clean(text, limit) or "-"
    fence = "`" * (1 + _longest_run(cleaned))
    return f"{fence} {cleaned} {fence}" if "`" in cleaned else f"{fence}{cleaned}{fence}"


def fenced(lines: Iterable[str]) -> list[str]:
    """``lines`` as a block of code."""
    cleaned = [" " * (len(line) - len(line.lstrip(" "))) + clean(line, 4000) for line in lines]
    fence = "`" * max(3, 1 + max(map(_longest_run, cleaned), default=0))
    return [f"{fence}text", *cleaned, fence, ""]


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


def _cell(text: str) -> str:
    """Code in a table: a pipe would part two cells."""
    return code_span(text.replace("|", "¦"))


def _source_line(report: Report, code: int) -> str:
    when = f", {format_time(report.started)}" if re.match(r"[0-9T:.Z+-]+\Z", report.started) else ""
    head = f"{code_span(localized_filled(report.source))}{when}, {duration(report.seconds)}"
    return phrase("{head}, exit code {code}.", head=head, code=int(code))


def _table(report: Report, folded: FoldedReport, failures: Sequence[CheckFailure]) -> Iterator[str]:
    """Hosts by what is wrong with them."""
    checks: dict[str, list[str]] = {}
    for failure in failures:
        for host in failure.hosts:
            checks.setdefault(host, []).append(failure.outcome.check)
        for other in failure.following:
            for host in other.hosts:
                checks.setdefault(host, []).append(other.check)
    unknown_checks = unknown_hosts(report)
    rows: dict[tuple[tuple[str, ...], int], list[str]] = {}
    for host in folded.fleet.ordered((*checks, *unknown_checks)):
        rows.setdefault((tuple(checks.get(host, ())), len(unknown_checks.get(host, ()))), []).append(host)
    if not rows:
        return
    yield from (f"| {localized('hosts')} | {localized('findings')} | {localized('unknown')} |", "|---|---|---|")
    for (names, unknown), hosts in list(rows.items())[:MAX_ROWS]:
        check_cells = ", ".join(map(_cell, names)) or "-"
        unknown_cell = count_noun(unknown, "check") if unknown else "-"
        yield f"| {_cell(folded.fleet.where(hosts))} | {check_cells} | {unknown_cell} |"
    yield ""
    if len(rows) > MAX_ROWS:
        yield from (phrase("... and {rows} more.", rows=count_noun(len(rows) - MAX_ROWS, "row")), "")


def _failure(failure: CheckFailure, pages: Mapping[str, Check], folded: FoldedReport) -> Iterator[str]:
    outcome = failure.outcome
    entry = failure_entry(failure, pages.get(outcome.check), SCOPE, folded.fleet)
    name = code_span(outcome.check)
    title = phrase("{name} on {where}", name=name, where=code_span(entry.where)) if entry.where else name
    yield from (f"## {localized(outcome.found_severity.value)}{localized(': ')}{title}", "")
    yield from (f"{localized('Healthy condition: ')}{code_span(localized_filled(outcome.claim))}", "")
    yield from fenced(_evidence(entry))
    why = [*_labelled(entry, "why")]
    if why and outcome.check not in pages:  # a page says it at length
        yield from (localized("Why it matters") + localized(": ").rstrip(), "", *fenced(why))
    fix = [*_labelled(entry, "fix")]
    if fix:
        yield from (localized("What to do:"), "", *fenced(fix))


def _evidence(entry: ReportEntry) -> Iterator[str]:
    for part in entry.parts:
        yield _headed(part.hosts, part.text)
        yield from _details(part.details)
    chosen = [(label, text) for label, text in entry.details if label in ("observed", "expected", "blocked")]
    yield from (_headed(localized(label), text) for label, text in chosen)
    yield from (localized("consequence: ") + _headed(name, text) for name, text in entry.following)


def _headed(head: str, text: str) -> str:
    return f"{head}{localized(': ')}{text}" if head else text


def _details(details: Iterable[tuple[str, str]]) -> Iterator[str]:
    for label, text in details:
        yield f"    {_headed(localized(label), text)}" if label else f"      {text}"


def _labelled(entry: ReportEntry, requested: str) -> Iterator[str]:
    label = ""
    for name, text in entry.details:
        label = name or label
        if label == requested:
            yield text


def _sections(report: Report, pages: Mapping[str, Check], code: int) -> Iterator[str]:
    """Sections for crashed, waived, unknown and unchecked, and for the smoke run."""
    page = build_page(report, pages, SCOPE, code)
    lines_by_title: dict[str, list[str]] = {}
    for section in page.sections:
        for entry in section.entries:
            title = section.title if section.title in ("unknown", "not checked") else ""
            title = title or {"crash": "crashed", "waived": "waived"}.get(entry.status_word, "")
            if title:
                lines_by_title.setdefault(title, []).extend(_entry_lines(entry))
    if page.smoke:
        lines_by_title[page.smoke_title] = [
            _headed(localized(label), text) if label else f"  {text}" for label, text in page.smoke
        ]
    for title, lines in lines_by_title.items():
        text = localized(title)
        yield from (f"## {text[:1].upper()}{text[1:]}", "", *fenced(lines))


def _entry_lines(entry: ReportEntry) -> Iterator[str]:
    for part in entry.parts:
        where = part.where or entry.where
        both = entry.name and where
        yield _headed(
            phrase("{name} on {where}", name=entry.name, where=where) if both else entry.name or where, part.text
        )
        yield from _details(part.details)
    yield from _details(entry.details)


def _notes(report: Report) -> list[str]:
    if not report.notes:
        return []
    notes = [f"- {code_span(localized_filled(note), 1000)}" for note in report.notes]
    return [f"## {localized('Notes')}", "", *notes, ""]


def _follow_up_commands(report: Report, failures: Sequence[CheckFailure], pages: Mapping[str, Check]) -> Iterator[str]:
    """Commands that show details, and that check again."""
    names = list(dict.fromkeys(failure.outcome.check for failure in failures))[:5]
    alone = report.source.startswith(THIS_HOST_ALONE)
    hosts = shlex.quote(clean(",".join(_hosts_to_check(report, failures)), 4000)) if report.hosts and not alone else ""
    chosen = "".join(f" --select {shlex.quote(clean(name))}" for name in names if name in pages)
    explain = [f"doctor explain {shlex.quote(clean(name))}" for name in names]
    # What logs show, no check of hosts evaluates again.
    again = [f"doctor check{chosen}{(' ' if hosts else '')}{hosts}"] if any(name in pages for name in names) else []
    if commands := [*explain, *again]:
        yield from (f"## {localized('To check again')}", "", *fenced(commands))


def _hosts_to_check(report: Report, failures: Sequence[CheckFailure]) -> list[str]:
    """The hosts to check again, folded: those of the findings, or all."""
    fleet = Fleet(report.hosts)
    blamed = fleet.ordered(host for failure in failures for host in failure.hosts if host in fleet.positions)
    return [fleet.fold(blamed or report.hosts)]

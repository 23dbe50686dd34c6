"""The report for a file, a pipe or a log: whole lines, nothing cut, nothing wrapped, made for grep.

    FAIL    device-ip-conflict on node[007,023] (2/64): 10.0.0.1 belongs to ...
            observed: ...
    unknown 14 checks on node003 (1/64): sudo -n: a password is required
            checks: ...
    ok      kernel: 14 checks on 64 hosts
    FAILED: 1 error on 2 of 64 hosts; 14 checks unknown

Every line of a status begins with its word, every detail with eight spaces, and the last line is the verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from doctor.engine.language import localized, phrase
from doctor.engine.output_encoding import without_signs
from doctor.engine.result import Report
from doctor.report.formats.registry import RenderContext
from doctor.report.layout.formatting import STYLES
from doctor.report.layout.page import build_page
from doctor.report.layout.page_model import DetailLevel, Details, ReportEntry
from doctor.report.layout.summary_lines import SummaryLines
from doctor.report.layout.terminal import Terminal

MAX_GROUPS = 10_000
"""Groups of one check: a bound for a host that makes up devices, not for a reader."""


def render(report: Report, context: RenderContext) -> str:
    """The report as plain lines."""
    terminal, brief, verbose = context.terminal or Terminal(), context.brief, context.verbose
    level = DetailLevel(MAX_GROUPS, MAX_GROUPS, lists_every_check=verbose, names_checks=verbose, shortens=not verbose)
    page = build_page(report, context.checks_by_name, level, context.code, context.fixable_checks)
    lines: list[str] = []
    for section in page.sections:
        if not brief or section.title in ("findings", "unknown"):
            for entry in section.entries:
                lines += _entry(entry, terminal.colour, brief)
    if not brief:
        lines += [f"net     {line}" for line in page.net]
        lines += _smoke(page.smoke, "watch" if page.watched else "smoke")
    unfilled = [] if brief else page.summary.unfilled_in("\n".join(lines))
    lines += _summary_lines(page.summary, terminal.colour, unfilled)
    text = "\n".join(lines) + "\n"
    return text if terminal.unicode else without_signs(text)


def _entry(entry: ReportEntry, colour: bool, brief: bool) -> Iterator[str]:
    word = _painted(entry.status_word, f"{entry.status_word:<7}", colour)
    for part in entry.parts:
        where = part.where or entry.where
        both = entry.name and where
        head = phrase("{name} on {where}", name=entry.name, where=where) if both else entry.name or where
        yield f"{word} {head}{localized(': ')}{part.text}" if head else f"{word} {part.text}"
        yield from () if brief else _details(part.details)
    if not brief:
        yield from _details(entry.details)
        yield from _details([("follows", f"{name}{localized(': ')}{text}") for name, text in entry.following])


def _details(details: Iterable[tuple[str, str]]) -> Iterator[str]:
    for label, text in details:
        yield f"        {localized(label)}{localized(': ')}{text}" if label else f"          {text}"


def _smoke(smoke: Details, word: str) -> Iterator[str]:
    for label, text in smoke:
        yield f"{word:<8}{localized(label)}{localized(': ')}{text}" if label else f"          {text}"


def _summary_lines(summary: SummaryLines, colour: bool, unfilled: Sequence[str]) -> Iterator[str]:
    for note in summary.notes:
        yield f"note    {note}"
    yield f"run     {summary.source}"
    if summary.first_step:
        yield f"first   {summary.first_step}"
    if unfilled:
        yield f"values  {localized('Fill in yourself: ')}{', '.join(unfilled)}"
    if summary.fix_command:
        yield f"plan    {summary.fix_offer}{' ' * summary.fix_offer.isascii()}{summary.fix_command}"
    yield _painted(summary.status_word, summary.verdict, colour)


def _painted(word: str, text: str, colour: bool) -> str:
    return f"\x1b[{STYLES[word].code}m{text}\x1b[0m" if colour else text

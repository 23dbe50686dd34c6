"""The first steps in a few lines, for a job's log below the one line of the verdict. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from doctor.engine.check import Check
from doctor.engine.language import localized, phrase, without_loose_spaces
from doctor.engine.result import Report
from doctor.engine.texts import filled
from doctor.report.layout.failures import failure_entry
from doctor.report.layout.fold import FoldedReport, fold
from doctor.report.layout.formatting import clean, count_noun, sentences, translated
from doctor.report.layout.page_model import DetailLevel, ReportEntry

BRIEF_LEVEL = DetailLevel(1, 1, lists_every_check=False, names_checks=False, max_chars=80)
MAX_LINE_CHARS = 400
"""Characters of one line; a command is never cut, up to `MAX_COMMAND_LINE_CHARS`."""
MAX_COMMAND_LINE_CHARS = 2000


def advice(report: Report, pages: Mapping[str, Check], limit: int = 5) -> list[str]:
    """At most ``limit`` lines: errors with the beginning of their remedy, root causes first; where there are none, what
    is unknown, and why, which may decide alone, and then warnings. The last line counts what is left.
    """
    folded = fold(report, BRIEF_LEVEL.max_chars)
    errors = [failure.errors_alone() for failure in folded.failures if failure.is_error]
    lines = [] if errors else _unknown(folded)
    lines += [
        _failure(failure_entry(failure, pages.get(failure.outcome.check), BRIEF_LEVEL, folded.fleet))
        for failure in errors or folded.failures
    ]
    if len(lines) > limit:
        lines = [
            *lines[: limit - 1],
            phrase("... and {lines}", lines=count_noun(len(lines) - limit + 1, "more such line")),
        ]
    return lines


def _failure(entry: ReportEntry) -> str:
    fix = next((text for label, text in (*entry.parts[0].details, *entry.details) if label == "fix"), "")
    name = phrase("{name} on {where}", name=entry.name, where=entry.where) if entry.where else entry.name
    summary = clean(entry.parts[0].text, MAX_LINE_CHARS // 2)
    place = entry.parts[0].hosts
    if len(entry.parts) > 1 and place and place not in summary:  # other hosts have other values
        summary = f"{place}{localized(': ')}{summary}"
    head = f"{entry.status_word} {name}{localized(': ')}{summary}"
    if not fix:
        return clean(head, MAX_LINE_CHARS)
    first, *others = sentences(fix)
    line = phrase("{head}. Fix: {first}", head=head.rstrip(".。"), first=first)
    for sentence in others:
        if len(line) + len(sentence) >= MAX_LINE_CHARS:
            line = without_loose_spaces(line + " " + phrase("(more: doctor explain {name})", name=entry.name))
            break
        line += sentence if line.endswith("。") else f" {sentence}"
    return clean(line, MAX_COMMAND_LINE_CHARS)


def _unknown(folded: FoldedReport) -> list[str]:
    crashed = [outcome for area in folded.areas for outcome in area.crashed]
    lines = [phrase("crash {name}: the check crashed, please report it", name=outcome.check) for outcome in crashed]
    for gap in folded.unknown:
        name = gap.checks[0] if len(gap.checks) == 1 else count_noun(len(gap.checks), "check")
        where = folded.fleet.where(gap.hosts)
        subject = phrase("{name} on {where}", name=name, where=where) if where else name
        reason = translated(gap.reason)
        lines.append(clean(filled("unknown {0}{1}{2}", subject, localized(": "), reason), MAX_LINE_CHARS))
    return lines

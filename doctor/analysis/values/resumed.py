"""What a resumed training must have as its checkpoint had it: which quantity, and what is said where it has not. Pure.

A row is all that a kind of loss needs; who compared what, and how sure it is that the loss was not meant, the source
says (`ResumeDifference.level`).
"""

from __future__ import annotations

from collections.abc import Iterator

from doctor.analysis.values.value_defect import describe
from doctor.engine.result import Finding
from doctor.engine.texts import filled, joined
from doctor.engine.toml_compat import table_beside
from doctor.engine.watch_summary import ResumeDifference, ResumeReport, WatchResult

CHECK = "resume-state-lost"

SETTINGS = frozenset({"cast", "rate", "settings"})
"""What a user sets, and sees at once where it is another."""


_templates = table_beside(__file__, dict[str, str])
"""By kind of difference, in the order in which they are shown."""


def resume_findings(watch: WatchResult) -> Iterator[Finding]:
    """What was lost, by the ranks' hosts. A note is no finding: it may be meant."""
    for row in _ordered(watch.resumed):
        if row.level == "note":
            continue
        ranks = [rank for rank in row.ranks or watch.hosts if rank in watch.hosts]
        hosts = tuple(dict.fromkeys(watch.hosts[rank] for rank in ranks))
        template, values = _text(row)
        finding = Finding(template, hosts=hosts, **values, ranks=list(row.ranks))
        yield finding.as_warning(row.level == "warning")


def resume_notes(report: ResumeReport) -> tuple[str, ...]:
    """What differs and may be meant, and what could not be compared."""
    notes = [text for row, text in _texts(report) if row.level == "note"]
    notes += [filled("not compared with the save of step {0}: {1}", report.step, text) for text in report.uncompared]
    return (_head(report), *dict.fromkeys(notes))


def resume_lines(report: ResumeReport) -> list[str]:
    """What was lost, each in a line, for a job that runs; in the last one, which settings are others."""
    settings = [text for row, text in _texts(report) if row.level == "note" and row.kind in SETTINGS]
    lines = [filled("{0}: {1}", CHECK, text) for row, text in _texts(report) if row.level != "note"]
    return [*lines, joined("; ", (_head(report), *dict.fromkeys(settings)))] if settings else lines


def _head(report: ResumeReport) -> str:
    return filled("this training goes on from what step {0} saved", report.step)


def is_lost(report: ResumeReport) -> bool:
    """Whether anything was lost that is more than a note."""
    return any(row.level != "note" for row in report.differences)


def _ordered(report: ResumeReport | None) -> list[ResumeDifference]:
    order = list(_templates())
    rows = [row for row in (report.differences if report else ()) if row.kind in order]
    return sorted(rows, key=lambda row: order.index(row.kind))


def _texts(report: ResumeReport) -> list[tuple[ResumeDifference, str]]:
    return [(row, filled(template, **values)) for row in _ordered(report) for template, values in [_text(row)]]


def _text(row: ResumeDifference) -> tuple[str, dict[str, object]]:
    template = _templates()[row.kind]
    values: dict[str, object] = {**row.values, "who": describe(row.ranks)}
    if row.ranks and "{who}" not in template:  # of these ranks alone
        return "{who}: {text}", {**values, "text": filled(template, **values)}
    return template, values

"""A difference between two runs in words: for a reader, for a program, for a ticket. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from doctor import __version__
from doctor.engine.exit_code import verdict
from doctor.engine.result import Report, Severity
from doctor.report.diff.compare import KINDS, FindingChange, ReportDifference, UnknownChange, counts
from doctor.report.formats.json import to_json_value
from doctor.report.formats.markdown import code_span, fenced
from doctor.report.layout.fold import fold
from doctor.report.layout.formatting import clean, count_noun, format_time
from doctor.report.layout.host_names import Fleet
from doctor.report.layout.summary_lines import summary_lines

SCHEMA = "doctor.diff/1"
SCHEMA_FILE = Path(__file__).parents[1] / "schema" / "doctor.diff.1.json"
MAX_LINES = 8
"""Lines for one check and one kind of change, and checks that are named in one line."""
MAX_NAMED_CHECKS = 3
"""Up to so many checks are named where more are counted."""


def render(difference: ReportDifference, code: int) -> str:
    """In plain lines, each with its word first, and the verdicts last."""
    lines = [line for _, block in _blocks(difference) for line in block]
    return "\n".join([*lines, *_verdicts(difference, code)]) + "\n"


def render_markdown(difference: ReportDifference, code: int) -> str:
    """As a ticket; what hosts say stands in code alone."""
    numbers = counts(difference)
    head = ", ".join(f"{numbers[kind]} {kind}" for kind in KINDS if numbers[kind]) or "no findings in either run"
    lines = [f"# doctor: {head}", ""]
    for title, block in _blocks(difference):
        lines += [f"## {title.capitalize()}", "", *fenced(block)]
    lines += [f"- {code_span(line, 1000)}" for line in _verdicts(difference, code)]
    return "\n".join(lines) + "\n"


def render_json(difference: ReportDifference, code: int) -> str:
    """As a document of ``doctor.diff/1``; pure ASCII, keys sorted."""
    text = json.dumps(_document(difference, code), ensure_ascii=True, allow_nan=False, sort_keys=True)
    return msgspec.json.format(text, indent=2) + "\n"


def _document(difference: ReportDifference, code: int) -> dict[str, Any]:
    old, new = difference.old, difference.new
    document = {
        "schema": SCHEMA,
        "version": __version__,
        "exit": int(code),
        "old": {"started": old.started, "source": old.source, "verdict": verdict(old).value},
        "new": {"started": new.started, "source": new.source, "verdict": verdict(new, code).value},
        "counts": dict(counts(difference)),
        "changes": [msgspec.structs.asdict(change) for change in difference.changes],
        "hosts": {"added": difference.hosts_added, "removed": difference.hosts_removed},
        "checks": {"added": difference.checks_added, "removed": difference.checks_removed},
        "became_unknown": [msgspec.structs.asdict(gap) for gap in difference.became_unknown],
        "became_known": [msgspec.structs.asdict(gap) for gap in difference.became_known],
    }
    encodable: dict[str, Any] = to_json_value(document)
    return encodable


def _blocks(difference: ReportDifference) -> Iterator[tuple[str, list[str]]]:
    """Headings, and the lines under them; none without a line."""
    old, new = Fleet(difference.old.hosts, 400), Fleet(difference.new.hosts, 400)
    for kind in KINDS:
        fleet = old if kind in ("gone", "unseen") else new
        lines = list(_changes(difference.changes_of(kind), fleet))
        if lines:
            yield kind, lines
    gap_lines = [_unknown_line("unknown", gap, new) for gap in difference.became_unknown]
    gap_lines += [_unknown_line("known", gap, new) for gap in difference.became_known]
    if gap_lines:
        yield "known and unknown", gap_lines
    moved = [f"host added {old.fold(difference.hosts_added)}"] if difference.hosts_added else []
    moved += [f"host removed {old.fold(difference.hosts_removed)}"] if difference.hosts_removed else []
    moved += [_checks("added", difference.checks_added)] if difference.checks_added else []
    moved += [_checks("removed", difference.checks_removed)] if difference.checks_removed else []
    if moved:
        yield "hosts and checks", moved


def _changes(changes: Sequence[FindingChange], fleet: Fleet) -> Iterator[str]:
    counts_by_check: dict[str, int] = {}
    for change in changes:
        counts_by_check[change.check] = counts_by_check.get(change.check, 0) + 1
        if counts_by_check[change.check] <= MAX_LINES:
            yield _change(change, fleet)
    for check, number in counts_by_check.items():
        if number > MAX_LINES:
            yield f"{changes[0].kind:<8} ... and {number - MAX_LINES} more of {check} (-f json has all)"


def _change(change: FindingChange, fleet: Fleet) -> str:
    word = "FAIL" if change.severity is Severity.ERROR else "warn"
    where = f" on {fleet.where(change.hosts)}" if change.hosts else ""
    more = [change.reason] if change.reason else []
    more += (
        [f"{count_noun(change.count_before, 'finding')} before, {change.count_now} now"]
        if change.count_before != change.count_now and change.count_before and change.count_now
        else []
    )
    suffix = f" ({'; '.join(more)})" if more else ""
    return f"{change.kind:<8} {word} {change.check}{where}: {change.message}{suffix}"


def _unknown_line(word: str, gap: UnknownChange, fleet: Fleet) -> str:
    names = ", ".join(gap.checks) if len(gap.checks) <= MAX_NAMED_CHECKS else count_noun(len(gap.checks), "check")
    where = f" on {fleet.where(gap.hosts)}" if gap.hosts else ""
    then = "was " if word == "known" else ""
    return f"{word:<8} {names}{where}: {then}{gap.reason or 'no reason given'}"


def _checks(word: str, names: Sequence[str]) -> str:
    return f"checks {word} {', '.join(names) if len(names) <= MAX_LINES else len(names)}"


def _verdicts(difference: ReportDifference, code: int) -> Iterator[str]:
    numbers = counts(difference)
    yield "findings " + ", ".join(f"{numbers[kind]} {kind}" for kind in KINDS)
    yield f"before   {_verdict(difference.old, None)}"
    yield f"now      {_verdict(difference.new, code)}"


def _verdict(report: Report, code: int | None) -> str:
    when = f" ({format_time(report.started)})" if report.started else ""
    return clean(f"{summary_lines(report, fold(report), code).verdict}{when}", 400)

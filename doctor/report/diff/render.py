"""A difference between two runs in words: for a reader, for a program, for a ticket. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from doctor import __version__
from doctor.engine.exit_code import verdict
from doctor.engine.language import is_english, localized, localized_filled, phrase
from doctor.engine.output_encoding import display_width, padded
from doctor.engine.result import Report, Severity
from doctor.report.diff.compare import KINDS, FindingChange, Kind, ReportDifference, UnknownChange, counts
from doctor.report.diff.values import ValueChange
from doctor.report.formats.json import document_text
from doctor.report.formats.markdown import code_span, fenced
from doctor.report.layout.fold import fold
from doctor.report.layout.formatting import bracketed, clean, count_noun, format_time, translated
from doctor.report.layout.host_names import Fleet
from doctor.report.layout.summary_lines import summary_lines

SCHEMA = "doctor.diff/1"
MAX_LINES = 8
"""Lines for one check and one kind of change, and checks that are named in one line."""
_ROW_NAMES = {"findings": "diff: findings", "before": "diff: before", "now": "diff: now"}
"""How the catalogue names them: some mean something else in other reports."""
MAX_VALUES = 30
"""Settings and versions in the text."""
MAX_NAMED_CHECKS = 3
"""Up to so many checks are named where more are counted."""
MAX_VALUE = 160
"""Characters of a value."""
CONTEXT = 20
"""Characters on both sides of what differs in long values."""
CATEGORIES = frozenset((
    "cards", "code", "devices", "drivers", "environment", "files", "firewall", "firmware", "interfaces", "kernel",
    "launch", "libraries", "limits", "login", "modules", "mounts", "names", "packages", "shell", "sources", "system",
))  # fmt: skip
"""Those whose names are words."""


def render(difference: ReportDifference, code: int) -> str:
    """In plain lines, each with its word first, and the verdicts last."""
    lines = [line for _, block in _blocks(difference) for line in block]
    return "\n".join([*lines, *_verdicts(difference, code)]) + "\n"


def render_markdown(difference: ReportDifference, code: int) -> str:
    """As a ticket; what hosts say stands in code alone."""
    numbers = counts(difference)
    head = _counted(numbers, [kind for kind in KINDS if numbers[kind]]) or localized("no findings in either run")
    lines = [f"# doctor: {head}", ""]
    for title, block in _blocks(difference):
        lines += [f"## {localized(title).capitalize()}", "", *fenced(block)]
    lines += [f"- {code_span(line, 1000)}" for line in _verdicts(difference, code)]
    return "\n".join(lines) + "\n"


def render_json(difference: ReportDifference, code: int) -> str:
    """As a document of ``doctor.diff/1``; its messages are English, also where the user reads another language."""
    old, new = difference.old, difference.new
    changes = [msgspec.structs.asdict(change) for change in difference.changes]
    for change in changes:
        del change["localized_message"]
    document = {
        "schema": SCHEMA,
        "version": __version__,
        "exit": int(code),
        "old": {"started": old.started, "source": old.source, "verdict": verdict(old).value},
        "new": {"started": new.started, "source": new.source, "verdict": verdict(new, code).value},
        "counts": dict(counts(difference)),
        "changes": changes,
        "hosts": {"added": difference.hosts_added, "removed": difference.hosts_removed},
        "checks": {"added": difference.checks_added, "removed": difference.checks_removed},
        "values": [msgspec.structs.asdict(change) for change in difference.values],
        "became_unknown": [msgspec.structs.asdict(gap) for gap in difference.became_unknown],
        "became_known": [msgspec.structs.asdict(gap) for gap in difference.became_known],
    }
    return document_text(document)


def _blocks(difference: ReportDifference) -> Iterator[tuple[str, list[str]]]:
    """Headings, and the lines under them; none without a line."""
    old, new = Fleet(difference.old.hosts, 400), Fleet(difference.new.hosts, 400)
    for kind in KINDS:
        fleet = old if kind in ("gone", "unseen") else new
        lines = list(_changes(difference.changes_of(kind), fleet))
        if lines:
            yield kind, lines
    gap_lines = [_unknown_line(localized("unknown"), gap, _reason(gap), new) for gap in difference.became_unknown]
    for gap in difference.became_known:
        gap_lines.append(_unknown_line(localized("known"), gap, phrase("was {reason}", reason=_reason(gap)), new))
    if gap_lines:
        yield "known and unknown", gap_lines
    value_lines = [
        f"{_padded(localized('value'))} {change_line(change, new)}" for change in difference.values[:MAX_VALUES]
    ]
    if len(difference.values) > MAX_VALUES:
        count = len(difference.values) - MAX_VALUES
        value_lines.append(
            f"{_padded(localized('value'))} {phrase('... and {count} more (-f json has all)', count=count)}"
        )
    if value_lines:
        yield "settings and versions", value_lines
    moved = [phrase("host added {hosts}", hosts=old.fold(difference.hosts_added))] if difference.hosts_added else []
    if difference.hosts_removed:
        moved.append(phrase("host removed {hosts}", hosts=old.fold(difference.hosts_removed)))
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
            more = phrase("... and {count} more of {check} (-f json has all)", count=number - MAX_LINES, check=check)
            yield f"{_padded(localized(changes[0].kind))} {more}"


def _change(change: FindingChange, fleet: Fleet) -> str:
    word = "FAIL" if change.severity is Severity.ERROR else "warn"
    more = [localized_filled(change.reason)] if change.reason else []
    if change.count_before != change.count_now and change.count_before and change.count_now:
        before = count_noun(change.count_before, "finding")
        more.append(phrase("{findings} before, {count} now", findings=before, count=change.count_now))
    suffix = bracketed(localized("; ").join(more))
    name = _on(change.check, fleet.where(change.hosts) if change.hosts else "")
    return f"{_padded(localized(change.kind))} {word} {name}{localized(': ')}{change.localized_message}{suffix}"


def _padded(word: str) -> str:
    """The word at the start of a line, as wide as the widest in English."""
    return padded(word, 8)


def _on(name: str, where: str) -> str:
    return phrase("{name} on {where}", name=name, where=where) if where else name


def _counted(numbers: Mapping[Kind, int], kinds: Sequence[Kind]) -> str:
    return localized(", ").join(f"{numbers[kind]} {localized(kind)}" for kind in kinds)


def _reason(gap: UnknownChange) -> str:
    return localized_filled(gap.reason) if gap.reason else localized("no reason given")


def _unknown_line(word: str, gap: UnknownChange, reason: str, fleet: Fleet) -> str:
    names = ", ".join(gap.checks) if len(gap.checks) <= MAX_NAMED_CHECKS else count_noun(len(gap.checks), "check")
    where = _on(names, fleet.where(gap.hosts) if gap.hosts else "")
    return f"{_padded(word)} {where}{localized(': ')}{reason}"


def _checks(word: str, names: Sequence[str]) -> str:
    listed = ", ".join(names) if len(names) <= MAX_LINES else str(len(names))
    return phrase("checks added {names}" if word == "added" else "checks removed {names}", names=listed)


def _verdicts(difference: ReportDifference, code: int) -> Iterator[str]:
    numbers = counts(difference)
    rows = {
        "findings": _counted(numbers, KINDS),
        "before": _verdict(difference.old, None),
        "now": _verdict(difference.new, code),
    }
    names = {name: name if is_english() else localized(_ROW_NAMES[name]) for name in rows}
    wide = max(8, *map(display_width, names.values()))
    for name, text in rows.items():
        yield f"{padded(names[name], wide)} {text}"


def _verdict(report: Report, code: int | None) -> str:
    when = bracketed(format_time(report.started)) if report.started else ""
    return clean(f"{summary_lines(report, fold(report), code).verdict}{when}", 400)


def change_line(change: ValueChange, fleet: Fleet) -> str:
    """``sysctl net.ipv4.tcp_retries2: 15 -> 7, on all 4 hosts``."""
    subject = f"{category_name(change.category)} {translated(change.name, 200)}"
    where = _where(change.hosts, fleet)
    before, now = _where_they_differ(change.before, change.now)
    return f"{subject}{localized(': ')}{_value(before)} -> {_value(now)}{where}"


def _where_they_differ(before: str | None, now: str | None) -> tuple[str | None, str | None]:
    """Of long values, what is around the first and the last character that differ.

    >>> _where_they_differ("a" * 300 + "b" + "c" * 300, "a" * 300 + "d" + "c" * 300)
    ('...aaaaaaaaaaaaaaaaaaaabcccccccccccccccccccc...', '...aaaaaaaaaaaaaaaaaaaadcccccccccccccccccccc...')
    """
    if before is None or now is None or max(len(before), len(now)) <= MAX_VALUE:
        return before, now
    start = _common_length(before, now)
    end = min(_common_length(before[::-1], now[::-1]), len(before) - start, len(now) - start)
    return _part(before, start - CONTEXT, end - CONTEXT), _part(now, start - CONTEXT, end - CONTEXT)


def _common_length(before: str, now: str) -> int:
    """Characters at the beginning that both have."""
    pairs = enumerate(zip(before, now, strict=False))
    return next((place for place, (left, right) in pairs if left != right), min(len(before), len(now)))


def _part(value: str, left_out: int, left_out_at_end: int) -> str:
    start, stop = max(left_out, 0), len(value) - max(left_out_at_end, 0)
    return ("..." if start else "") + value[start:stop] + ("..." if stop < len(value) else "")


def category_name(category: str) -> str:
    """The category for people."""
    return localized(category) if category in CATEGORIES else category


def _where(hosts: Sequence[str], fleet: Fleet) -> str:
    if not hosts:
        return ""
    if len(hosts) > 1 and len(hosts) == len(fleet.hosts):
        return localized(", ") + phrase("on all {count} hosts", count=len(hosts))
    return localized(", ") + phrase("on {where}", where=fleet.where(hosts))


def _value(value: str | None) -> str:
    return localized("not there") if value is None else translated(value, MAX_VALUE) or localized("empty")

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
from doctor.report.diff.compare import KINDS, Blind, Change, Difference, counts
from doctor.report.formats.json import plain_value
from doctor.report.formats.markdown import code_span, fenced
from doctor.report.layout.fold import fold
from doctor.report.layout.formatting import clean, count, moment
from doctor.report.layout.host_names import Fleet
from doctor.report.layout.summary_lines import closing

SCHEMA = "doctor.diff/1"
SCHEMA_FILE = Path(__file__).parents[1] / "schema" / "doctor.diff.1.json"
MOST = 8
"""Lines for one check and one kind of change, and checks that are named in one line."""
NAMED = 3
"""Up to so many checks are named where more are counted."""


def render(difference: Difference, code: int) -> str:
    """In plain lines, each with its word first, and the verdicts last."""
    lines = [line for _, told in _blocks(difference) for line in told]
    return "\n".join([*lines, *_verdicts(difference, code)]) + "\n"


def render_markdown(difference: Difference, code: int) -> str:
    """As a ticket; what hosts say stands in code alone."""
    numbers = counts(difference)
    head = ", ".join(f"{numbers[kind]} {kind}" for kind in KINDS if numbers[kind]) or "no findings in either run"
    lines = [f"# doctor: {head}", ""]
    for title, told in _blocks(difference):
        lines += [f"## {title.capitalize()}", "", *fenced(told)]
    lines += [f"- {code_span(line, 1000)}" for line in _verdicts(difference, code)]
    return "\n".join(lines) + "\n"


def render_json(difference: Difference, code: int) -> str:
    """As a document of ``doctor.diff/1``; pure ASCII, keys sorted."""
    text = json.dumps(_document(difference, code), ensure_ascii=True, allow_nan=False, sort_keys=True)
    return msgspec.json.format(text, indent=2) + "\n"


def _document(difference: Difference, code: int) -> dict[str, Any]:
    old, new = difference.old, difference.new
    document = {
        "schema": SCHEMA,
        "version": __version__,
        "exit": int(code),
        "old": {"started": old.started, "source": old.source, "verdict": verdict(old).value},
        "new": {"started": new.started, "source": new.source, "verdict": verdict(new, code).value},
        "counts": dict(counts(difference)),
        "changes": [msgspec.structs.asdict(one) for one in difference.changes],
        "hosts": {"came": difference.hosts_came, "went": difference.hosts_went},
        "checks": {"came": difference.checks_came, "went": difference.checks_went},
        "darkened": [msgspec.structs.asdict(one) for one in difference.darkened],
        "cleared": [msgspec.structs.asdict(one) for one in difference.cleared],
    }
    plain: dict[str, Any] = plain_value(document)
    return plain


def _blocks(difference: Difference) -> Iterator[tuple[str, list[str]]]:
    """Headings, and the lines under them; none without a line."""
    old, new = Fleet(difference.old.hosts, 400), Fleet(difference.new.hosts, 400)
    for kind in KINDS:
        fleet = old if kind in ("gone", "unseen") else new
        told = list(_changes(difference.of(kind), fleet))
        if told:
            yield kind, told
    blind = [_blind("unknown", one, new) for one in difference.darkened]
    blind += [_blind("known", one, new) for one in difference.cleared]
    if blind:
        yield "known and not known", blind
    moved = [f"host came {old.fold(difference.hosts_came)}"] if difference.hosts_came else []
    moved += [f"host went {old.fold(difference.hosts_went)}"] if difference.hosts_went else []
    moved += [_checks("came", difference.checks_came)] if difference.checks_came else []
    moved += [_checks("went", difference.checks_went)] if difference.checks_went else []
    if moved:
        yield "hosts and checks", moved


def _changes(changes: Sequence[Change], fleet: Fleet) -> Iterator[str]:
    shown: dict[str, int] = {}
    for one in changes:
        shown[one.check] = shown.get(one.check, 0) + 1
        if shown[one.check] <= MOST:
            yield _change(one, fleet)
    for check, number in shown.items():
        if number > MOST:
            yield f"{changes[0].kind:<8} ... and {number - MOST} more of {check} (-f json has all)"


def _change(one: Change, fleet: Fleet) -> str:
    word = "FAIL" if one.severity is Severity.ERROR else "warn"
    where = f" on {fleet.where(one.hosts)}" if one.hosts else ""
    more = [one.why] if one.why else []
    more += [f"{count(one.was, 'finding')} before, {one.now} now"] if one.was != one.now and one.was and one.now else []
    told = f" ({'; '.join(more)})" if more else ""
    return f"{one.kind:<8} {word} {one.check}{where}: {one.message}{told}"


def _blind(word: str, blind: Blind, fleet: Fleet) -> str:
    names = ", ".join(blind.checks) if len(blind.checks) <= NAMED else count(len(blind.checks), "check")
    where = f" on {fleet.where(blind.hosts)}" if blind.hosts else ""
    then = "was " if word == "known" else ""
    return f"{word:<8} {names}{where}: {then}{blind.reason or 'no reason given'}"


def _checks(word: str, names: Sequence[str]) -> str:
    return f"checks {word} {', '.join(names) if len(names) <= MOST else len(names)}"


def _verdicts(difference: Difference, code: int) -> Iterator[str]:
    numbers = counts(difference)
    yield "findings " + ", ".join(f"{numbers[kind]} {kind}" for kind in KINDS)
    yield f"before   {_verdict(difference.old, None)}"
    yield f"now      {_verdict(difference.new, code)}"


def _verdict(report: Report, code: int | None) -> str:
    when = f" ({moment(report.started)})" if report.started else ""
    return clean(f"{closing(report, fold(report), code).verdict}{when}", 400)

"""What changed between two runs in words, and as a document. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from doctor import __version__
from doctor.engine.language import localized, localized_filled, phrase
from doctor.report.diff.rank_changes import FINDINGS, REASONS, RankedChange
from doctor.report.diff.value_lines import category_name, change_line
from doctor.report.diff.values import UNREAD, RunValues
from doctor.report.diff.way_back import way_back
from doctor.report.formats.json import to_json_value
from doctor.report.layout.formatting import count_noun, format_time
from doctor.report.layout.host_names import Fleet

SCHEMA = "doctor.changes/1"
SCHEMA_FILE = Path(__file__).parents[1] / "schema" / "doctor.changes.1.json"
MAX_SHOWN = 30
"""Changes in the text; the document has all."""
MAX_ALIKE = 8
"""Of one category, in the text, that nothing found now speaks for: an upgrade of packages hides nothing else."""
MAX_CHECKS = 4
"""Checks that are named for one change."""


class ChangesPage(msgspec.Struct, frozen=True, kw_only=True):
    """All that the page shows."""

    before: RunValues
    now: RunValues
    worked: bool
    """The earlier run worked, as far as is known."""
    same_since: str = ""
    """See `doctor.history.baseline.Baseline`."""
    changes: tuple[RankedChange, ...]
    uncompared: dict[tuple[str, ...], tuple[str, ...]] = {}
    """What one of the two runs did not read: by categories, the hosts."""
    notes: tuple[str, ...] = ()
    pace: tuple[str, ...] = ()
    """What the last watched run of the job was slower by than those before it."""


def render(page: ChangesPage, code: int) -> str:
    """In plain lines: a head, the changes with the likeliest first, then what was not compared."""
    fleet = Fleet(page.now.hosts, 400)
    lines = [_head(page)]
    if page.same_since:
        lines.append(
            phrase(
                "the changes came between {before} and {after}; nothing has changed since",
                before=format_time(page.before.started),
                after=format_time(page.same_since),
            )
        )
    lines += [localized_filled(line) for line in page.pace]
    displayed = _displayed(page.changes)
    for number, ranked in enumerate(displayed, 1):
        lines += ["", *(_change_lines(number, ranked, fleet))]
    if len(page.changes) > len(displayed):
        lines += ["", phrase("... and {count} more (--json has all)", count=len(page.changes) - len(displayed))]
    gaps = list(_gaps(page, fleet))
    lines += ["", *gaps] if gaps else []
    return "\n".join(lines) + "\n"


def _displayed(changes: Sequence[RankedChange]) -> list[RankedChange]:
    counts = Counter[str]()
    displayed: list[RankedChange] = []
    for ranked in changes:
        counts[ranked.change.category] += 1
        if counts[ranked.change.category] <= MAX_ALIKE or REASONS.index(ranked.reason) < FINDINGS:
            displayed.append(ranked)
    return displayed[:MAX_SHOWN]


def _head(page: ChangesPage) -> str:
    kind = localized("the last run that worked") if page.worked else localized("an earlier run")
    when = format_time(page.before.started)
    if not page.changes:
        if page.uncompared:
            return phrase("nothing that was compared has changed since {when}, {kind}", when=when, kind=kind)
        return phrase("nothing has changed since {when}, {kind}", when=when, kind=kind)
    changes = count_noun(len(page.changes), "change")
    return phrase(
        "{changes} since {when}, {kind}; the likeliest cause of a failure first", changes=changes, when=when, kind=kind
    )


def _change_lines(number: int, ranked: RankedChange, fleet: Fleet) -> Iterator[str]:
    yield f"{number:>3}. {change_line(ranked.change, fleet)}"
    why = _reason(ranked)
    if why:
        yield f"     {why}"
    peer = next((host for host in fleet.hosts if host not in ranked.change.hosts), "")
    command = way_back(ranked.change, peer)
    if command and ranked.change.hosts:
        yield "     " + phrase(
            "where it is not intended, back as root on {where}: `{command}`",
            where=fleet.where(ranked.change.hosts),
            command=command,
        )
    elif command:
        yield "     " + phrase("where it is not intended, back: `{command}`", command=command)


def _reason(ranked: RankedChange) -> str:
    more = len(ranked.checks) - MAX_CHECKS
    names = ", ".join(ranked.checks[:MAX_CHECKS]) + (", ..." if more > 0 else "")
    messages = count_noun(ranked.messages, "known message of a log", "known messages of logs")
    if ranked.reason == "failing":
        return phrase("read by {names}, which found something now", names=names)
    if ranked.reason == "cause":
        return phrase("read by {names}, a possible cause of what was found now", names=names)
    if ranked.reason == "message":
        return phrase("read by {names}, which explains {messages}", names=names, messages=messages)
    return phrase("read by {names}", names=names) if names else ""


def _gaps(page: ChangesPage, fleet: Fleet) -> Iterator[str]:
    for categories, hosts in page.uncompared.items():
        listed = localized(", ").join(map(category_name, categories))
        yield phrase("not compared in full: {listed}, on {where}", listed=listed, where=fleet.where(hosts))
    absent = [host for host in page.before.hosts if host not in page.now.hosts]
    if absent:
        yield phrase("not compared: {where}, in the earlier run alone", where=fleet.fold(absent))
    added = [host for host in page.now.hosts if host not in page.before.hosts]
    if added:
        yield phrase("not compared: {where}, in this run alone", where=fleet.fold(added))
    for category in sorted(page.before.job.keys() ^ page.now.job.keys()):
        yield phrase("not compared: {listed}, known of one of the two runs", listed=category_name(category))
    if UNREAD in {**page.before.job.get("code", {}), **page.now.job.get("code", {})}:
        yield phrase("not compared: sources in the program's folder, too many to be read")
    yield from page.notes


def render_json(page: ChangesPage, code: int) -> str:
    """As a document of ``doctor.changes/1``; pure ASCII, keys sorted."""
    text = json.dumps(to_json_value(_document(page, code)), ensure_ascii=True, allow_nan=False, sort_keys=True)
    return msgspec.json.format(text, indent=2) + "\n"


def _document(page: ChangesPage, code: int) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "version": __version__,
        "exit": int(code),
        "before": {"started": page.before.started, "command": page.before.command, "worked": page.worked},
        "now": {"started": page.now.started, "verdict": page.now.verdict},
        "same_since": page.same_since,
        "changes": [
            {
                **msgspec.structs.asdict(ranked.change),
                "reason": ranked.reason,
                "checks": ranked.checks,
                "messages": ranked.messages,
            }
            for ranked in page.changes
        ],
        "uncompared": [{"categories": categories, "hosts": hosts} for categories, hosts in page.uncompared.items()],
        "notes": page.notes,
        "pace": page.pace,
    }

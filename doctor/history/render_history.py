"""A page of the history in words, and as a document. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from doctor import __version__
from doctor.engine.language import localized, phrase
from doctor.engine.output_encoding import display_width, padded
from doctor.history.run_record import State
from doctor.history.tracks import HistoryPage, RunSummary, Track
from doctor.report.formats.json import document_text
from doctor.report.layout.finding_table import cut, short_time
from doctor.report.layout.formatting import clean, count_noun, format_time, wrapped
from doctor.report.layout.host_names import Fleet

SCHEMA = "doctor.history/1"
MAX_SHOWN_RUNS = 10
"""Runs that the page lists; the newest."""
MAX_SHOWN_TRACKS = 40
MAX_HOST_CHARS = 200
UNCUT = 10_000
INDENT = 9
"""Cells before the text of a track."""
MAX_COLUMNS = 40
"""Runs in the row of letters behind a track; the newest."""
LETTERS: Mapping[State | None, str] = {"error": "E", "warning": "W", "waived": "A", "clear": ".", None: " "}
LEGEND = "E error, W warning, A accepted (waived), . looked and found nothing, blank: not looked at"
"""What the letters mean."""


def render_json(page: HistoryPage) -> str:
    """A document of ``doctor.history/1``."""
    document = {"schema": SCHEMA, "version": __version__, **msgspec.structs.asdict(page)}
    return document_text(msgspec.to_builtins(document))


def render(page: HistoryPage, width: int, subject: str = "") -> str:
    """The page for a terminal of ``width`` columns; 0: none, so that nothing is cut.

    ``subject``: the hosts or the check that it is of.
    """
    return "\n".join(_lines(page, width or UNCUT, subject)) + "\n"


def _lines(page: HistoryPage, width: int, subject: str) -> Iterator[str]:
    newest = page.runs[-1].started
    fleet = Fleet(page.hosts, MAX_HOST_CHARS)
    if not subject:
        yield from _run_lines(page.runs, fleet, width)
        yield ""
    letters = bool(subject) or len(page.tracks) <= MAX_SHOWN_TRACKS
    for track in page.tracks[:MAX_SHOWN_TRACKS]:
        head, *rest = wrapped(_where(track, fleet), width - INDENT)
        yield padded(localized(track.kind), INDENT) + head
        yield from (f"{'':<{INDENT}}{line}" for line in (*rest, *wrapped(_story(track, newest), width - INDENT)))
        if letters:
            yield f"{'':<{INDENT}}[{_row(track.states, width - INDENT - 2)}]"
    if len(page.tracks) > MAX_SHOWN_TRACKS:
        yield phrase("... and {count} more (--json has all)", count=len(page.tracks) - MAX_SHOWN_TRACKS)
    if page.tracks:
        yield ""
        yield from _wrapped_legend(width)
    for number in sorted(set(page.checks_by_host.values()), reverse=True):
        hosts = [host for host, count in page.checks_by_host.items() if count == number]
        runs = count_noun(len(page.runs), "run")
        text = phrase("{hosts}: checked in {number} of {runs}", hosts=fleet.fold(hosts), number=number, runs=runs)
        yield from wrapped(text, width)
    yield from wrapped(_last_line(page, subject), width)


def _wrapped_legend(width: int) -> Iterator[str]:
    legend = localized(LEGEND)
    if display_width(legend) <= width:
        yield legend
    else:
        first, sign, second = legend.partition(". ")
        yield from (first.rstrip(" ,，"), sign + second)


def _run_lines(runs: Sequence[RunSummary], fleet: Fleet, width: int) -> Iterator[str]:
    left_columns = ((localized("run (UTC)"), 20), (localized("command"), 9), (localized("verdict"), 9))
    right_columns = ((localized("hosts"), 6), (localized("found"), 6), (localized("came"), 5), (localized("went"), 5))
    heads = [
        *(padded(text, cells) for text, cells in left_columns),
        *(" " * (cells - display_width(text)) + text for text, cells in right_columns),
    ]
    yield " ".join(heads)
    for run in runs[-MAX_SHOWN_RUNS:]:
        yield (
            f"{format_time(run.started).removesuffix(' UTC'):<20} {clean(run.command, 9):<9}"
            f" {padded(localized(clean(run.verdict, 9)), 9)}"
            f" {run.hosts:>6} {run.findings:>6} {run.came:>5} {run.went:>5}"
        )
        moved = [
            f"{sign}{fleet.fold(hosts)}" for sign, hosts in (("+", run.hosts_added), ("-", run.hosts_removed)) if hosts
        ]
        if moved:
            yield cut(f"{'':<20} {localized('hosts')} {' '.join(moved)}", width)
    if len(runs) > MAX_SHOWN_RUNS:
        yield phrase("and {count} before them", count=len(runs) - MAX_SHOWN_RUNS)


def _where(track: Track, fleet: Fleet) -> str:
    return (
        phrase("{name} on {where}", name=clean(track.check, 100), where=fleet.where(fleet.ordered(track.hosts)))
        if track.hosts
        else clean(track.check, 100)
    )


def _story(track: Track, newest: str) -> str:
    present = sum(state not in ("clear", None) for state in track.states)
    judged = sum(state is not None for state in track.states)
    share = phrase("in {count} of {runs}", count=present, runs=count_noun(judged, "run"))
    seen, clear = short_time(track.last_seen, newest), short_time(track.last_clear, newest)
    if track.is_present:
        text = phrase("present since {time}, {share}", time=short_time(track.first_seen, newest), share=share)
    else:
        text = phrase("clear at {time}, last seen {seen}, {share}", time=clear, seen=seen, share=share)
    if track.times > 1:
        text += phrase(", came {times} times", times=track.times)
    if not track.is_current:
        text += phrase("; not checked since {time}", time=seen if track.is_present else clear)
    return text


def _row(states: Sequence[State | None], width: int) -> str:
    return "".join(LETTERS[state] for state in states[-max(min(MAX_COLUMNS, width), 1) :])


def _last_line(page: HistoryPage, subject: str) -> str:
    first, last = page.runs[0].started, page.runs[-1].started
    span = phrase("{first} to {last}", first=format_time(first)[:16], last=short_time(last, first))
    kinds = [track.kind for track in page.tracks]
    counted = (f"{kinds.count(kind)} {localized(kind)}" for kind in dict.fromkeys(kinds))
    numbers = localized(", ").join(counted) or localized("nothing found")
    unread = phrase("; {files} could not be read", files=count_noun(page.damaged, "file")) if page.damaged else ""
    head = f"{clean(subject, 100)}{localized(': ')}" if subject else ""
    return f"{head}{numbers}{localized('; ')}{count_noun(len(page.runs), 'run')}{localized(', ')}{span}{unread}"

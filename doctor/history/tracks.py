"""What came, went, flapped or stayed over many runs, by check and host; and how the fleet changed. Pure.

A run that did not look at a host is neither a finding nor its end: a track has a gap there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from doctor.history.run_record import RunRecord, RunView, State

TrackKind = Literal["flapped", "came", "stays", "went"]
TRACK_KINDS: tuple[TrackKind, ...] = ("flapped", "came", "stays", "went")
"""In the order of the page."""
FLAP_TIMES = 2
"""A finding that was there in so many separate rows of runs, or more, flaps."""


class Track(msgspec.Struct, frozen=True):
    """One check on some hosts that went through the same states."""

    kind: TrackKind
    check: str
    hosts: tuple[str, ...]
    """Empty: the fleet as a whole."""
    states: tuple[State | None, ...]
    """One for each run, oldest first; None where it did not look, or was of another fleet."""
    is_present: bool
    """The last run that looked had a finding."""
    is_current: bool
    """That run is the newest one that had the check."""
    first_seen: str
    """Start of the first run of the current or last row of findings."""
    last_seen: str
    """Start of the last run with a finding."""
    last_clear: str
    """Start of the last run that looked and found nothing; empty: none."""
    times: int
    """How often it came."""


class RunSummary(msgspec.Struct, frozen=True):
    """One run, beside the one before it with the same command."""

    started: str
    command: str
    verdict: str
    hosts: int
    seconds: float
    findings: int
    """Checks and hosts with a finding, waived ones included."""
    came: int
    """So many of them were clear before."""
    went: int
    """So many were found before, and are clear now."""
    hosts_added: tuple[str, ...]
    hosts_removed: tuple[str, ...]


class HistoryPage(msgspec.Struct, frozen=True):
    """Some runs, and what they tell together."""

    runs: tuple[RunSummary, ...]
    """Oldest first."""
    tracks: tuple[Track, ...]
    hosts: tuple[str, ...]
    """All hosts of the runs, those of the newest first."""
    damaged: int = 0
    """Files that could not be read."""
    checks_by_host: dict[str, int] = {}
    """Of hosts that were asked for: how many runs looked at them with any check."""


def history_page(
    records: Sequence[RunRecord], *, hosts: Iterable[str] = (), check: str = "", damaged: int = 0
) -> HistoryPage:
    """The page of some runs, oldest first; of some hosts or one check alone where they are named."""
    views = [RunView(record) for record in records]
    named = frozenset(hosts)
    keys = {
        key
        for view in views
        for key in view.blamed()
        if (not named or key[1] in named) and (not check or key[0] == check)
    }
    alike: dict[tuple[str, bool, tuple[State | None, ...]], list[str]] = {}
    for check_name, host in sorted(keys):
        states = _states(check_name, host, views)
        if any(states):
            alike.setdefault((check_name, bool(host), states), []).append(host)
    starts = [record.started for record in records]
    newest = {name: number for number, view in enumerate(views) for name in view.checks}
    tracks = [
        _track(name, tuple(filter(None, members)), states, newest[name], starts)
        for (name, _, states), members in alike.items()
    ]
    tracks.sort(
        key=lambda track: (
            TRACK_KINDS.index(track.kind),
            [-ord(letter) for letter in track.last_seen],
            track.check,
            track.hosts,
        )
    )
    all_hosts = dict.fromkeys(host for record in reversed(records) for host in record.names[: record.host_count])
    return HistoryPage(
        tuple(_summary(number, views) for number in range(len(views))),
        tuple(tracks),
        tuple(all_hosts),
        damaged,
        {host: sum(bool(view.looked_at(host)) for view in views) for host in sorted(named)},
    )


def _states(check: str, host: str, views: Sequence[RunView]) -> tuple[State | None, ...]:
    """The state in each run that can be compared with the newest one that had the check and the host."""
    fleet = next(
        (view.hosts for view in reversed(views) if check in view.checks and (host in view.hosts or not host)), None
    )
    if fleet is None:  # a name that is no host of any run
        fleet = next((view.hosts for view in reversed(views) if view.state(check, host)), frozenset())
    return tuple(view.state(check, host) if view.is_comparable(check, host, fleet) else None for view in views)


def _track(
    check: str, hosts: tuple[str, ...], states: tuple[State | None, ...], newest: int, starts: Sequence[str]
) -> Track:
    """``newest``: the last run that had the check."""
    judged = [(number, state != "clear") for number, state in enumerate(states) if state]
    present = [number for number, has_finding in judged if has_finding]
    clear = [number for number, has_finding in judged if not has_finding]
    changes = sum(before != after for (_, before), (_, after) in pairwise(judged))
    is_present = judged[-1][1]
    times = changes // 2 + 1 if is_present else (changes + 1) // 2
    start = next((number for (_, before), (number, now) in reversed([*pairwise(judged)]) if now and not before), None)
    kind: TrackKind = "flapped" if times >= FLAP_TIMES else "went" if not is_present else "came" if changes else "stays"
    return Track(
        kind,
        check,
        hosts,
        states,
        is_present,
        judged[-1][0] == newest,
        starts[start if start is not None else present[0]] if present else "",
        starts[present[-1]] if present else "",
        starts[clear[-1]] if clear else "",
        times,
    )


def _summary(number: int, views: Sequence[RunView]) -> RunSummary:
    view = views[number]
    record = view.record
    earlier = next(
        (
            other
            for other in reversed(views[:number])
            if other.record.command == record.command and other.hosts & view.hosts
        ),
        None,
    )
    blamed = set(view.blamed())
    appeared, vanished = 0, 0
    if earlier is not None:
        for key in blamed | set(earlier.blamed()):
            if view.is_comparable(*key, earlier.hosts) and earlier.is_comparable(*key, view.hosts):
                before, now = earlier.state(*key), view.state(*key)
                appeared += before == "clear" and now not in ("clear", None)
                vanished += before not in ("clear", None) and now == "clear"
    return RunSummary(
        record.started,
        record.command,
        record.verdict,
        record.host_count,
        record.seconds,
        len(blamed),
        appeared,
        vanished,
        tuple(sorted(view.hosts - earlier.hosts)) if earlier else (),
        tuple(sorted(earlier.hosts - view.hosts)) if earlier else (),
    )

"""What a host has still to send of its ranks: pieces that wait are joined, so that it stays bounded."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from doctor.smoke.model import MOST_CALLS, Collective
from doctor.watch.fleet.messages import RankNews, WatchedMoment
from doctor.watch.pace import MOST_WAITING, Entry, StepTimes

MOST_EVENTS = 4096
"""Of one rank: the first ones, which tell who it is and its groups, and the newest in the place of the last."""
MOMENT_FIELDS = frozenset(WatchedMoment.__struct_fields__)


class _RankBox:
    """One rank: all its events, the newest moment, and what was not sent of them yet."""

    def __init__(self) -> None:
        self.events: list[Mapping[str, Any]] = []
        self.sent_events = 0
        self.moment: dict[str, Any] | None = None
        self.fresh = False
        self.calls: list[Sequence[Any]] = []
        self.entered: dict[int, int] = {}
        self.entries: list[Entry] = []
        self.steps: list[StepTimes] = []

    def add_events(self, events: Iterable[Mapping[str, Any]]) -> None:
        for event in events:
            if len(self.events) >= MOST_EVENTS:
                self.events.pop()
                self.sent_events = min(self.sent_events, len(self.events))
            self.events.append(event)

    def add_moment(self, fields: Mapping[str, Any]) -> None:
        self.calls = [*self.calls, *fields.get("calls", ())][-MOST_CALLS:]
        self.entered.update((int(group), seq) for group, seq in fields.get("entered", {}).items())
        paths = fields.get("paths") or (self.moment or {}).get("paths", ())
        self.moment = {name: value for name, value in fields.items() if name in MOMENT_FIELDS}
        self.moment["paths"] = paths
        self.fresh = True

    def take(self, rank: int) -> RankNews | None:
        events = tuple(dict(event) for event in self.events[self.sent_events :])
        if not events and not self.fresh and not self.entries and not self.steps:
            return None
        moment = None
        if self.fresh and self.moment is not None:
            calls = tuple(Collective(*call) for call in self.calls)
            moment = WatchedMoment(**{**self.moment, "calls": calls, "entered": dict(self.entered)})
        if moment is not None and self.moment is not None:
            self.moment["paths"] = ()  # they were sent
        news = RankNews(rank, events, moment, tuple(self.entries), tuple(self.steps))
        self.sent_events, self.fresh, self.calls, self.entries, self.steps = len(self.events), False, [], [], []
        return news


class Outbox:
    """Filled by the thread that looks at the ranks, emptied by the one that sends."""

    def __init__(self) -> None:
        self._ranks: dict[int, _RankBox] = {}
        self._lock = threading.Lock()

    def add(
        self,
        rank: int,
        events: Sequence[Mapping[str, Any]],
        fields: Mapping[str, Any] | None,
        entries: Sequence[Entry],
        steps: Sequence[StepTimes] = (),
    ) -> None:
        """``fields``: of a snapshot, with the rank's own numbers of its groups; None where nothing is new."""
        with self._lock:
            box = self._ranks.setdefault(rank, _RankBox())
            box.add_events(events)
            if fields is not None:
                box.add_moment(fields)
            box.entries = [*box.entries, *entries][-4 * MOST_CALLS :]
            box.steps = [*box.steps, *steps][-MOST_WAITING:]

    def take(self) -> list[RankNews]:
        with self._lock:
            return [news for rank, box in sorted(self._ranks.items()) if (news := box.take(rank)) is not None]

    def start_again(self) -> None:
        """For a new connection: all events and each rank's newest moment are to be sent once more."""
        with self._lock:
            for box in self._ranks.values():
                box.sent_events, box.fresh = 0, box.moment is not None

"""What passes between the hosts of a watched job, one line of JSON each: news to the leader, orders and verdicts back.

Hosts are not trusted: each line is bounded and checked before it is used, and a host speaks for its own ranks alone.
Pieces that wait to be sent are joined, so that what a host has still to send stays bounded.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import msgspec

from doctor.engine.decoding import prepare_decoding
from doctor.smoke.model import MOST_CALLS, Collective, Number, RankMoment, Seconds, Word
from doctor.watch.pace import MOST_WAITING, Entry, StepTimes
from doctor.watch.paths import MOST_PATHS

PROTOCOL = "watch 2"
Text = Annotated[str, msgspec.Meta(max_length=1000)]


class WatchedMoment(RankMoment, frozen=True):
    """The same of a watched rank, and how it gets on."""

    error: Text = ""
    rest: Seconds = -1.0
    """Seconds since its processes last got on; -1: not known."""
    effort: Word = ""
    """By what they get on; empty: they rest."""
    died_at: Seconds = 0.0
    """When its end was noticed, by the host's monotonic clock."""
    times: tuple[Number, Number, Number] | None = None
    """Nanoseconds of compute, in collectives, of input."""
    cpu_wait: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    """Share of its time in which it waited for a CPU."""
    cpu_seconds: Seconds = 0.0
    """For which its threads and children waited for one, together."""
    paths: Annotated[tuple[tuple[Word, Word, Seconds, Seconds], ...], msgspec.Meta(max_length=MOST_PATHS)] = ()
    """See `doctor.watch.paths.PathRow`."""


class RankNews(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is new of one rank."""

    rank: Number
    events: tuple[dict[str, object], ...] = ()
    """As its hook wrote them."""
    moment: WatchedMoment | None = None
    entries: Annotated[tuple[Entry, ...], msgspec.Meta(max_length=4 * MOST_CALLS)] = ()
    steps: Annotated[tuple[StepTimes, ...], msgspec.Meta(max_length=MOST_WAITING)] = ()
    """That it has ended."""


class HostNews(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of a host to the leader; empty: the host is still there."""

    news: RankNews | None = None
    stacks: dict[Number, Annotated[str, msgspec.Meta(max_length=1 << 17)]] | None = None
    """The answer to an order: by rank; an empty text where the rank writes none."""
    pong: tuple[Seconds, Seconds] | None = None
    """The leader's time in an order, and the host's own monotonic clock when it came."""
    over: bool = False
    """All ranks of the host have ended."""


class FleetVerdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the leader decided on a training."""

    code: Annotated[int, msgspec.Meta(ge=0, le=255)]
    """Exit code of the report; 0: nothing was found."""
    headline: Text = ""
    place: Text = ""
    """Where the report is."""
    hang: bool = False


class FleetOrder(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the leader to a host."""

    ping: Seconds = 0.0
    """The leader's clock, to be sent back at once."""
    stacks: tuple[Number, ...] = ()
    """Ranks whose stacks are asked for."""
    verdict: FleetVerdict | None = None
    refused: Text = ""
    """Why the leader does not take this host's word."""


prepare_decoding(HostNews, FleetOrder)


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

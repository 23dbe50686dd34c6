"""How far the ranks of a smoke run have come, by what they said of themselves, and who is overdue. No effects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from doctor.engine.sanitize import plain
from doctor.smoke.model import Plan, Trouble, TroubleKind
from doctor.smoke.protocol import Event, NotUnderstood

START = 60.0
"""Seconds for interpreters to start and to import torch, which a slow file system can draw out."""
JOIN = 20.0
"""Seconds from the last import until every rank has joined."""
TRY = 3.0
"""Seconds for which a rank may be refused by the master: its port was bound before any rank was started."""
GRACE = 0.35
"""Seconds in which others may fail of the same cause."""
MOST_EVENTS = 200_000
"""Of one host; a sound one says a few thousand."""


class Try(NamedTuple):
    """A rank could not connect to the master, since then."""

    problem: str
    text: str
    since: float


class Fall(NamedTuple):
    """The process that a host's ranks come from has ended."""

    kind: TroubleKind
    text: str
    at: float


class Progress:
    def __init__(self, plan: Plan, began: float) -> None:
        self.plan, self.began = plan, began
        self.events: dict[str, list[dict[str, Any]]] = {place.host: [] for place in plan.places}
        self.ranks = {host: tuple(p.rank for p in plan.places if p.host == host) for host in self.events}
        self.imports: dict[str, float] = {}
        """Seconds that the import took, the slowest of each host."""
        self._loaded: set[int] = set()
        self.last_import = began
        self.tries: dict[int, Try] = {}
        self.joined: set[int] = set()
        self.done: set[int] = set()
        self.reached: dict[str, float] = {}
        self.finished: dict[str, set[int]] = {}
        self.groups: dict[int, tuple[str, tuple[int, ...]]] = {0: ("world", tuple(range(plan.world)))}
        self.layout: dict[int, int] = {}
        self.errors: dict[int, str] = {}
        """Last words; under ``-1 - number of the host`` those of the process that its ranks come from."""
        self.logs: dict[int, str] = {}
        self.fallen: dict[str, Fall] = {}
        self.kinds: set[str] = set()
        """What was told of, by any host."""

    def hear(self, host: str, event: Event, whole: dict[str, Any], now: float) -> None:
        """Takes in what a rank of ``host`` said. Raises: NotUnderstood, for what it cannot have said."""
        if event.rank != -1 and event.rank not in self.ranks[host]:
            raise NotUnderstood(f"an event of rank {event.rank}, which does not run there")
        if len(self.events[host]) >= MOST_EVENTS:
            raise NotUnderstood(f"more than {MOST_EVENTS} events")
        self.events[host].append(whole)
        self.kinds.add(event.ev)
        if hears := getattr(self, "_" + event.ev.replace("-", "_"), None):
            hears(host, event, whole, now)

    def _imported(self, host: str, event: Event, whole: dict[str, Any], now: float) -> None:
        seconds = whole.get("seconds")
        if not isinstance(seconds, (int, float)):
            raise NotUnderstood("an import without its seconds")
        self.imports[host] = max(self.imports.get(host, 0.0), float(seconds))
        self._loaded |= set(self.ranks[host]) if event.rank == -1 else {event.rank}
        self.last_import = now

    def _try(self, host: str, event: Event, whole: dict[str, Any], now: float) -> None:
        self.tries[event.rank] = Try(event.problem, plain(event.text, 300), now)

    def _joined(self, host: str, event: Event, whole: dict[str, Any], now: float) -> None:
        self.joined.add(event.rank)
        self.tries.pop(event.rank, None)

    def _group(self, host: str, event: Event, whole: dict[str, Any], now: float) -> None:
        if not all(0 <= rank < self.plan.world for rank in event.ranks):
            raise NotUnderstood("a process group of ranks that are not")
        self.groups[event.gid] = (plain(event.name, 60), event.ranks)

    def _stage(self, host: str, event: Event, whole: dict[str, Any], now: float) -> None:
        self._finish(event.stage, event.rank, now)

    def _finish(self, stage: str, rank: int, now: float) -> None:
        ranks = self.finished.setdefault(stage, set())
        ranks.add(rank)
        if len(ranks) == self.plan.world:
            self.reached.setdefault(stage, round(now - self.began, 3))

    def _begin(self, host: str, event: Event, whole: dict[str, Any], now: float) -> None:
        self.layout[event.rank] = event.layout

    def _done(self, host: str, event: Event, whole: dict[str, Any], now: float) -> None:
        self.done.add(event.rank)
        self._finish("teardown", event.rank, now)

    def _error(self, host: str, event: Event, whole: dict[str, Any], now: float) -> None:
        words = f"{event.kind}: {event.text}" if event.text else event.kind
        self.errors[self._key(host, event.rank)] = plain(words, 600)

    def _exit(self, host: str, event: Event, whole: dict[str, Any], now: float) -> None:
        if event.log:
            self.logs[event.rank] = plain(event.log, 300)
        if event.tail and self._key(host, event.rank) not in self.errors:
            self.errors[self._key(host, event.rank)] = last_words(event.tail)
        if event.rank == -1 and event.status:
            started = bool(self._loaded & set(self.ranks[host]))
            said = self.errors.get(self._key(host, -1), "")
            text = said if said and not started else f"the process that its ranks come from: {ended(event.status)}"
            self.fallen.setdefault(host, Fall("dead" if started else "not-started", text, now))

    def _key(self, host: str, rank: int) -> int:
        return rank if rank >= 0 else -1 - list(self.ranks).index(host)

    def overdue(self, now: float) -> Trouble | None:
        """Who has not started or not joined in time, or could not by what it said."""
        if self.fallen:
            return self._fallen(now)
        everyone = set(range(self.plan.world))
        missing, limit = everyone - self._loaded, min(START, self.plan.budget)
        if missing:
            text = f"torch was not imported within {limit:g} s"
            late = now - self.began > limit
            return self._blame("not-started", missing, text, "start", limit=limit) if late else None
        waiting = everyone - self.joined
        refused = {rank for rank in waiting if rank in self.tries}
        if any(now - self.tries[rank].since > TRY for rank in refused):
            return self._blame("never-joined", refused, self._why(refused), "rendezvous", certain=True)
        if waiting and now - self.last_import > JOIN:
            return self._blame("never-joined", waiting, self._why(waiting), "rendezvous", limit=JOIN)
        return self._spent() if now - self.began > self.plan.budget else None

    def _fallen(self, now: float) -> Trouble | None:
        """All that fall for the same reason do so at about the same time."""
        first = min(self.fallen.values(), key=lambda fall: fall.at)
        if now - first.at < GRACE:
            return None
        alike = {host: fall.text for host, fall in self.fallen.items() if fall.kind == first.kind}
        ranks = [rank for host in alike for rank in self.ranks[host]]
        words = "; ".join(sorted(set(alike.values()))[:4])
        return self._blame(first.kind, ranks, words, "start" if first.kind == "not-started" else "", certain=True)

    @property
    def stage(self) -> str:
        """The first that not every rank has finished."""
        return next((stage for stage in self.plan.stages if stage not in self.reached), "")

    def _spent(self) -> Trouble:
        stage = self.stage
        behind = set(range(self.plan.world)) - self.finished.get(stage, set())
        text = f"the budget of {self.plan.budget:g} s was spent"
        return self._blame("budget", behind, text, stage, limit=self.plan.budget)

    def _why(self, ranks: Iterable[int]) -> str:
        said = [self.tries[rank].text for rank in sorted(ranks) if rank in self.tries]
        return "; ".join(dict.fromkeys(said)) or f"it did not join within {JOIN:g} s of the last import"

    def _blame(
        self,
        kind: TroubleKind,
        ranks: Iterable[int],
        text: str,
        stage: str,
        limit: float = 0.0,
        certain: bool = False,
    ) -> Trouble:
        guilty = tuple(sorted(ranks))
        victims = tuple(rank for rank in range(self.plan.world) if rank not in guilty)
        certainty = "certain" if certain else "timeout"
        return Trouble(kind, guilty, victims, (), certainty, stage, text=text, limit=limit)  # type: ignore[arg-type]

    @property
    def complete(self) -> bool:
        return len(self.done) == self.plan.world

    def in_layout(self, ranks: Iterable[int]) -> str:
        """Name of the layout that the first of these ranks was training, or the empty string."""
        numbers = [self.layout[rank] for rank in ranks if rank in self.layout]
        known = [number for number in numbers if 0 <= number < len(self.plan.layouts)]
        return self.plan.layouts[known[0]].name if known else ""


def ended(status: int) -> str:
    """A wait status in words."""
    return f"killed by signal {status & 0x7F}" if status & 0x7F else f"exit status {status >> 8 & 0xFF}"


def last_words(tail: str) -> str:
    """The last line that says something."""
    lines = [line for line in map(plain, tail[-2000:].splitlines()) if line]
    return lines[-1] if lines else ""

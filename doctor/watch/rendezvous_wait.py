"""Ranks that the others wait for in the rendezvous: at work on something before, at rest, or never started."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from doctor.engine.sanitize import rank_names
from doctor.engine.texts import filled
from doctor.remote.runtime.reading import names_in
from doctor.smoke.model import Failure
from doctor.watch.attach.inspector.connected import user_of
from doctor.watch.attach.inspector.rank_finder import JOB_VARIABLES, named_rank
from doctor.watch.effort import Effort
from doctor.watch.fleet.meeting import rank_environment

SEARCH_SECONDS = 5.0
"""Between two searches for the processes of ranks that are late."""
MOST_SEARCHED = 1 << 16
SAME_JOB = (*JOB_VARIABLES, "MS_SCHED_HOST", "PMIX_NAMESPACE")
"""Variables that processes of one job have alike; where one has none of them, neither have the others."""


class RendezvousWait:
    """Who has come to the rendezvous of one training, and what those do that have not."""

    def __init__(self, world: int) -> None:
        self.world = world
        self.joined: dict[int, float] = {}
        """When each rank had met the others."""
        self.arrived: dict[int, float] = {}
        """When each rank was first seen."""
        self.timeouts: dict[int, float] = {}
        """By rank: seconds for which its `init_process_group` waits; only where that is known."""
        self.not_started: set[int] = set()
        """Late ranks that no process of their host has the number of, where it shows those of all that have come."""
        self._at_rest: set[int] = set()
        """Of other hosts."""
        self._reported: set[int] = set()
        self._pids: dict[int, int] = {}
        self._efforts: dict[int, Effort] = {}
        self._searched_at = 0.0

    def take_event(self, rank: int, event: Mapping[str, Any], now: float) -> None:
        if event.get("ev") == "late":
            (self.not_started if event.get("missing") else self._at_rest).add(late_rank(event))
            return
        self.arrived.setdefault(rank, now)
        timeout = event.get("timeout")
        if event.get("ev") == "joined":
            self.joined.setdefault(rank, now)
        elif event.get("ev") == "rank" and isinstance(timeout, (int, float)) and 0 < timeout < 1e9:
            self.timeouts[rank] = float(timeout)

    @property
    def away(self) -> set[int]:
        """Ranks that will not come, as far as their own hosts can tell."""
        return self.not_started | self._at_rest

    def new_events(self, ranks: Iterable[int]) -> list[dict[str, Any]]:
        """For the leader: of late ranks of this host that will not come, each once."""
        fresh = [rank for rank in ranks if rank not in self.arrived and rank not in self._reported]
        self._reported.update(fresh)
        return [{"ev": "late", "rank": rank, "missing": rank in self.not_started} for rank in fresh]

    def late(self) -> list[int]:
        """Ranks that have not come, while all others wait for them; empty where some have met, or all have come."""
        if not self.arrived or self.joined or len(self.arrived) >= self.world:
            return []
        return [rank for rank in range(self.world) if rank not in self.arrived]

    def waited(self, now: float) -> float:
        """Seconds since the last rank that has come came."""
        return now - max(self.arrived.values(), default=now)

    def look(self, pids: Mapping[int, int], local: Collection[int], now: float) -> dict[int, tuple[float, str]]:
        """By late rank whose process was found: seconds since its processes got on, and by what, as `Effort`.

        ``pids``: of ranks of this host that have come; ``local``: ranks that must be on this host.
        """
        late = set(self.late())
        if not late or not pids:
            return {}
        if now - self._searched_at >= SEARCH_SECONDS:
            self._searched_at = now
            processes = _processes_of({*late, *pids}, *min(pids.items()))
            self._pids = {rank: pid for rank, pid in processes.items() if rank in late}
            sees_all = processes.keys() >= pids.keys()
            self.not_started -= set(local)
            self.not_started |= late.intersection(local) - processes.keys() if sees_all else set()
        efforts = {}
        for rank, pid in self._pids.items():
            if rank not in self._efforts:
                self._efforts[rank] = Effort()
                self._efforts[rank].begin(now)
            self._efforts[rank].look(pid, now, self.waited(now), loads=False)
            efforts[rank] = self._efforts[rank].rest(now), self._efforts[rank].kind
        return efforts

    def failure(self, ranks: Collection[int], unseen: Collection[int], now: float) -> Failure:
        """``ranks``: the late ones to name. ``unseen``: ranks that may run where no watch is."""
        known_ranks = tuple(rank for rank in sorted(ranks) if rank not in unseen)
        seconds = now - min(self.arrived.values())
        text = filled("it has not called init_process_group since {0} s", f"{seconds:.0f}")
        if not known_ranks:
            text = "{0} did not call init_process_group for {1} s, or run where no doctor watch is"
            text = filled(text, rank_names(sorted(ranks)), f"{seconds:.0f}")
        elif self.not_started.issuperset(known_ranks):
            text = filled("no process was started for it; the others wait for {0} s", f"{seconds:.0f}")
        return Failure(
            "never-joined",
            known_ranks,
            tuple(sorted(self.arrived)),
            stage="rendezvous",
            op="init_process_group",
            seconds=round(seconds, 3),
            text=text,
        )


def late_rank(event: Mapping[str, Any]) -> int:
    """Of an event ``late``: its rank; -1 for one that no watch sends."""
    rank = event.get("rank")
    return rank if isinstance(rank, int) else -1


def _processes_of(ranks: Collection[int], joining_rank: int, joining_pid: int) -> dict[int, int]:
    """By rank: the first process of this host and user that was started with its number, in that rank's job."""
    like = rank_environment(joining_pid)
    named, job = named_rank(like), [like.get(variable) for variable in SAME_JOB]  # type: ignore[no-untyped-call]
    pids: dict[int, int] = {}
    if named is None or named[0] != joining_rank:
        return pids
    for entry in sorted(map(int, filter(str.isdigit, names_in("/proc", MOST_SEARCHED)))):
        environ = rank_environment(entry) if user_of(entry) == os.geteuid() else {}  # type: ignore[no-untyped-call]
        number = named_rank(environ)  # type: ignore[no-untyped-call]
        is_of_job = number is not None and [environ.get(variable) for variable in SAME_JOB] == job
        if number is not None and is_of_job and number[0] in ranks and number[2] == named[2]:
            pids.setdefault(number[0], entry)
    return pids

"""Current state of all ranks: latest snapshots, call history, open collectives, and how long one may take. Pure.

Limits are in effective seconds, without the time that a thread was ready and waited for a CPU, and without the first 10
s of waiting for a disk: 8 ranks on 2 cores are slow, not stuck.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from doctor.smoke.hang.describe import FailureBuilder, current_collective
from doctor.smoke.hang.traces import STEPPED, CallLedger, Trace, form, goes_beyond, same_call
from doctor.smoke.model import Collective, Snapshot
from doctor.smoke.programs.recorder_page import P2P_GROUP_BASE, ends_of

QUIET = 0.1
"""Seconds without an event after which a rank is examined."""
WARMING = STEPPED | {"devices"}
"""Stages whose steps begin with one that warms up."""
NOTABLE = 0.05
"""Seconds below which a phase cannot raise any limit."""


class AdaptiveLimits:
    """The longest normal phases by state and stage. What a first step takes, with its warming up, teaches nothing."""

    def __init__(self, floor: float, network_floor: float, factor: float, warmup: float) -> None:
        self.floor, self.network_floor, self.factor, self.warmup = floor, network_floor, factor, warmup
        self.longest: dict[tuple[str, str], float] = {}
        self.longest_phase: dict[int, float] = {}
        """The longest phase of each rank since it last left a collective, or entered the one it is in."""
        self._layout_start: dict[int, tuple[str, int]] = {}
        """Stage of each rank, and the step that it began its present layout with."""

    def observe(self, last: Snapshot | None, snap: Snapshot, transfer: float) -> None:
        """A rank went on to another phase. `transfer_limit`: seconds its collective needed once all ranks were in."""
        if last is not None:
            self._learn(last, transfer)
        stage, _ = self._layout_start.get(snap.rank, ("", 0))
        if stage != snap.stage or last is None or snap.step < last.step:
            self._layout_start[snap.rank] = (snap.stage, snap.step)
        self._remember(last, snap)

    def _learn(self, last: Snapshot, transfer: float) -> None:
        took = transfer if last.state == "collective" else last.effective
        if took > NOTABLE and not self.is_first(last):
            key = (last.state, last.stage)
            self.longest[key] = max(self.longest.get(key, 0.0), took)

    def is_first(self, snap: Snapshot) -> bool:
        """Whether this is the first of its kind: devices compile, communicators connect."""
        if snap.state == "collective" and snap.seq == 1:
            return True
        return snap.stage in WARMING and snap.step == self._layout_start.get(snap.rank, ("", snap.step))[1]

    def _remember(self, last: Snapshot | None, snap: Snapshot) -> None:
        """What the rank needed to get to the collective that it is in: those who are to come may need it, too."""
        inside = snap.state == "collective"
        if last is None or len(snap.calls) > inside or last.state == "collective":
            self.longest_phase[snap.rank] = 0.0
        if last is not None and last.state != "collective" and len(snap.calls) <= inside:
            self.longest_phase[snap.rank] = max(self.longest_phase.get(snap.rank, 0.0), last.effective)

    def absence_limit(self, snap: Snapshot, needed: float) -> float:
        """For a rank outside of a collective, when those that wait for it in there needed so long."""
        longest = max(self.longest.get((snap.state, snap.stage), 0.0), needed)
        return max(self.floor, self.warmup if self.is_first(snap) else 0.0, self.factor * longest)

    def transfer_limit(self, snap: Snapshot) -> float:
        """For bytes to arrive once all are in the collective."""
        longest = self.longest.get(("collective", snap.stage), 0.0)
        return max(self.network_floor, self.warmup if self.is_first(snap) else 0.0, self.factor * longest)


class RunState(FailureBuilder):
    """The newest snapshot of every rank, the calls so far, and what has been learnt."""

    def __init__(self, world: int, limits: AdaptiveLimits) -> None:
        super().__init__({0: ("world", tuple(range(world)))}, world)
        self.limits = limits
        self.ledger = CallLedger(self.members)
        self.quiet: list[Snapshot] = []
        """Living ranks that have given no sign for a while."""
        self.now = 0.0
        self.complete_since: dict[tuple[int, int], float] = {}
        """Places that all members have entered and some have not left for a while; since when that is known."""

    def members(self, group: int) -> Sequence[int]:
        if group >= P2P_GROUP_BASE:
            return ends_of(group, self.world)[:2]
        return self.groups[group][1] if group in self.groups else ()

    def update(self, snapshots: Mapping[int, Snapshot], now: float) -> None:
        """Takes in what came since the last time; every Snapshot object once."""
        self.now, self.quiet = now, []
        for rank, snap in snapshots.items():
            if self.snaps.get(rank) is not snap:
                self._take_snapshot(self.snaps.get(rank), snap)
            if snap.age > QUIET and not snap.dead:
                self.quiet.append(snap)

    def _take_snapshot(self, last: Snapshot | None, snap: Snapshot) -> None:
        self.snaps[snap.rank] = snap
        if snap.calls:
            trace = self.traces.get(snap.rank) or self.traces.setdefault(snap.rank, Trace())
            for call in snap.calls:
                self.ledger.add(snap.rank, call)
                trace.add(call)
        if last is None or last.stamp != snap.stamp:
            since = self.complete_since.get((last.group, last.seq)) if last and last.state == "collective" else None
            self.limits.observe(
                last, snap, min(last.effective, self.now - since) if last and since is not None else 0.0
            )

    def absent_members(self, group: int, seq: int) -> list[int]:
        """Members that have not entered this place. Counters and recorded calls may each lack something."""
        called = self.ledger.calls(group, seq)
        return [rank for rank in self.members(group) if rank not in called and self.entered(rank, group) < seq]

    def finished_members(self, group: int, seq: int) -> tuple[int, ...]:
        """Living members that have entered this place and are out of it."""
        snaps = [self.snaps[rank] for rank in self.members(group) if rank in self.snaps]
        inside = {snap.rank for snap in snaps if snap.state == "collective" and (snap.group, snap.seq) == (group, seq)}
        absent = {*inside, *self.absent_members(group, seq)}
        return tuple(snap.rank for snap in snaps if snap.rank not in absent and not snap.dead)

    def entered(self, rank: int, group: int) -> int:
        """The number of its last call; the agent may have read the counters before the state, from one moment on."""
        snap = self.snaps.get(rank)
        inside = snap.seq if snap and snap.state == "collective" and snap.group == group else 0
        return max(inside, snap.entered.get(group, 0)) if snap else 0

    def awaited_collective(self, ranks: Iterable[int]) -> Collective | None:
        """The collective in which others wait for these."""
        absent = set(ranks)
        for snap in self.snaps.values():
            if snap.state == "collective" and absent.intersection(self.absent_members(snap.group, snap.seq)):
                return current_collective(snap)
        return None

    # ---- culprit ranks

    def deviating_ranks(self, ranks: Iterable[int]) -> list[int]:
        return [rank for rank in sorted(ranks) if rank in self.traces and self.traces[rank].deviates()]

    def isolated_ranks(self, ranks: Collection[int]) -> list[int]:
        """The disputing ranks that no rank outside of the dispute acts like, if outside ranks act like others of them.

        A rank that waits in a collective together with one of them may have no other way on, and is not outside; but
        one that has done before what a disputing rank does, and gone on, shows that this belongs there.
        """
        disputed = [rank for rank in sorted(ranks) if rank in self.traces]
        sides = {self._place(rank) for rank in disputed} - {None}
        others = {rank: trace for rank, trace in self.traces.items() if rank not in ranks}
        outside = [trace for rank, trace in others.items() if self._place(rank) not in sides]
        last = [self.traces[rank].last for rank in disputed]
        # Of calls of one place, those of other groups with its number tell what belongs there, not what came before.
        of_one_place = len({(call.group, call.seq) for call in last if call}) == 1
        isolated = [
            rank
            for rank in disputed
            if not any(
                same_call(self.traces[rank], outsider, self.members)
                or (of_one_place and self._calls_alike(self.traces[rank], outsider))
                for outsider in outside
            )
            and not any(goes_beyond(self.traces[rank], other, self.members) for other in others.values())
        ]
        return isolated if len(isolated) < len(disputed) else []

    def _calls_alike(self, trace: Trace, other: Trace) -> bool:
        """Whether the last calls of two ranks are one: of the same number, each in a group of its own, of one size."""
        mine, its = trace.last, other.last
        if mine is None or its is None or mine.group == its.group:
            return False
        sizes = {len(self.members(call.group)) for call in (mine, its)}
        place, its_place = [(call.seq, call.stage, call.step, form(call)) for call in (mine, its)]
        return len(sizes) == 1 and place == its_place

    def _place(self, rank: int) -> tuple[int, int] | None:
        """The group and the number of the collective that a rank is in."""
        snap = self.snaps.get(rank)
        return (snap.group, snap.seq) if snap is not None and snap.state == "collective" else None

    def ranks_ahead(self, ranks: Iterable[int]) -> list[int]:
        """Those of these ranks that are through with the loop, layout or stage that others of them are in."""
        progress = {rank: self.traces[rank].progress for rank in sorted(ranks) if rank in self.traces}
        return [rank for rank, place in progress.items() if place > min(progress.values())]

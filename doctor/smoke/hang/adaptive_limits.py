"""How long a rank may take before it counts as stuck, learnt from how long the ranks have taken. Pure.

All in effective seconds, without the time that a thread was ready and waited for a CPU, and without the first 10 s of
waiting for a disk: 8 ranks on 2 cores are slow, not stuck.
"""

from __future__ import annotations

from collections.abc import Iterable

from doctor.smoke.hang.traces import STEPPED
from doctor.smoke.model import Snapshot

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

    def time_to_arrive(self, ranks: Iterable[int]) -> float:
        """The longest that one of these needed to get to where it is."""
        return max((self.longest_phase.get(rank, 0.0) for rank in ranks), default=0.0)

    def absence_limit(self, snap: Snapshot, needed: float) -> float:
        """For a rank outside of a collective, when those that wait for it in there needed so long."""
        longest = max(self.longest.get((snap.state, snap.stage), 0.0), needed)
        return max(self.warmup if self.is_first(snap) else self.floor, self.factor * longest)

    def transfer_limit(self, snap: Snapshot) -> float:
        """For bytes to arrive once all are in the collective."""
        longest = self.longest.get(("collective", snap.stage), 0.0)
        return max(self.network_floor, self.warmup if self.is_first(snap) else 0.0, self.factor * longest)

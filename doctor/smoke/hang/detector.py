"""Names the rank that stopped a run, from outside its collectives. Pure: no clock, no input or output.

The supervisor feeds it what it has of every rank. The order of the rules matters, as an earlier one explains what a
later one would misread: gloo aborts innocent ranks over the wrong shape of another, and a rank that ended leaves all
others waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from doctor.smoke.hang.adaptive_limits import Limits
from doctor.smoke.hang.exits import Deaths, Stops
from doctor.smoke.hang.mismatch import Circle, Clash
from doctor.smoke.hang.stalls import Resend, Transfers, absent, idle, left
from doctor.smoke.hang.state import Scene
from doctor.smoke.hang.wait_graph import waits
from doctor.smoke.model import Snapshot, Trouble

__all__ = ["Detector", "Resend", "joined"]

UNJUDGED = frozenset({"start", "rendezvous"})
"""Stages without groups; their deadlines are the supervisor's."""


def joined(older: Snapshot | None, newer: Snapshot) -> Snapshot:
    """The newer snapshot with the calls of both, for an older one that was not fed yet."""
    if older is None or not older.calls:
        return newer
    return msgspec.structs.replace(newer, calls=older.calls + newer.calls)


class Detector:
    """Give it the groups with `learn_group`, and the ranks' newest snapshots with `feed`, until a trouble comes out."""

    def __init__(
        self,
        world: int,
        floor: float = 1.0,
        factor: float = 10.0,
        network_floor: float = 1.5,
        grace: float = 0.35,
        *,
        warmup: float = 0.0,
        hosts: Sequence[str] = (),
    ) -> None:
        """`floor`, `network_floor`, `factor`: the least limits, and how many normal times make one. `warmup`: the least
        for a first step. `grace`: seconds for a death's cause to be heard of. `hosts`: by rank, to name links."""
        self._scene = Scene(world, Limits(floor, network_floor, factor, max(warmup, floor)))
        self._clash, self._circle = Clash(), Circle()
        self._deaths, self._stops = Deaths(grace), Stops()
        self._transfers = Transfers(hosts)

    @property
    def groups(self) -> dict[int, tuple[str, tuple[int, ...]]]:
        return self._scene.groups

    @property
    def suspects(self) -> tuple[int, ...]:
        """Ranks whose transfer seems stuck: a look at their sockets would tell."""
        return self._transfers.suspects

    def learn_group(self, gid: int, name: str, ranks: Iterable[int]) -> None:
        self.groups[gid] = (name, tuple(ranks))
        self._scene.ledger.settle(gid)

    def feed(
        self, snapshots: Mapping[int, Snapshot], now: float, late: float = 0.0, evidence: Sequence[Resend] = ()
    ) -> Trouble | None:
        """One look at all ranks. The calls of a Snapshot object are read once, however often it is fed."""
        scene = self._scene
        scene.look(snapshots, now)
        if scene.ledger.clash:
            return self._clash.judge(scene)
        if (dead := self._deaths.judge(scene)) or self._deaths.pending:
            return dead
        return self._stops.judge(scene) or self._hang(late, evidence)

    def _hang(self, late: float, evidence: Sequence[Resend]) -> Trouble | None:
        scene = self._scene
        blocked = (snap for snap in scene.quiet if snap.state == "collective" and snap.stage not in UNJUDGED)
        found = waits(blocked, scene.missing)
        stuck = self._transfers.judge(scene, found, late, evidence)
        if not found:
            return idle(scene, late)
        return self._circle.judge(scene, found) or left(scene, found) or absent(scene, found, late) or stuck

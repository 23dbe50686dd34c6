"""Rules about ranks that wait for one that does not come, or for bytes that do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from doctor.smoke.hang.state import Scene
from doctor.smoke.hang.wait_graph import Wait, Where
from doctor.smoke.model import Snapshot, Trouble, TroubleKind
from doctor.smoke.run.describe import current

LEFT = 0.3
"""Seconds after its end that a rank's last calls may take to be heard of."""
EVIDENT = 0.5
"""Seconds after which a stuck transfer counts when a socket of it sends again and again."""
SUSPECT = 0.35
"""Seconds after which the sockets of a stuck transfer are worth a look."""
RESENT = 2
IDLE = 10.0
"""Floors after which data loaders are stuck that nobody waits for, as all ranks are in theirs."""


class Resend(NamedTuple):
    """A connection of a rank on which the kernel sends again what was not acknowledged."""

    rank: int
    peer: str
    """The other host's name, or the address where it is not known."""
    unacked: int
    retransmits: int


def left(scene: Scene, found: Mapping[Where, Wait]) -> Trouble | None:
    """Ranks that are done while others wait for them; or, if most are done, those that call what nobody else does."""
    for wait in found.values():
        gone = [rank for rank in wait.missing if rank in scene.snaps and _gone(scene.snaps[rank])]
        if not gone:
            continue
        about = current(scene.snaps[wait.blocked[0]])
        surplus = scene.straying(wait.blocked)
        if len(gone) > len(wait.blocked) or (surplus and len(gone) == len(wait.blocked)):
            why = "The other ranks of the group are done: nobody else makes this call."
            return scene.tell("mismatch", wait.blocked, about=about, evidence=(why,))
        return scene.tell("left", gone, about=about, text="is done while others wait for it")
    return None


def _gone(snap: Snapshot) -> bool:
    return snap.state == "done" and (bool(snap.dead) or snap.age > LEFT)


def absent(scene: Scene, found: Mapping[Where, Wait], late: float) -> Trouble | None:
    """Ranks outside of any collective that others wait for, beyond what is normal."""
    needed: dict[int, float] = {}
    for wait in found.values():
        took = scene.limits.needed(wait.blocked)
        needed.update((rank, max(took, needed.get(rank, 0.0))) for rank in wait.missing)
    limits = {}
    for rank, took in needed.items():
        snap = scene.snaps.get(rank)
        if snap is not None and snap.state in ("input", "compute") and not snap.dead:
            limit = scene.limits.absence(snap, took) + late
            if snap.effective > limit:
                limits[rank] = limit
    return _stuck(scene, limits) if limits else None


def idle(scene: Scene, late: float) -> Trouble | None:
    """Ranks that nobody waits for in a collective: the last that is not done, or all of them in their data loaders."""
    active = [snap for snap in scene.snaps.values() if snap.state != "done" and not snap.dead]
    last = len(active) == 1 < scene.world == len(scene.snaps)
    loading = bool(active) and all(snap.state == "input" for snap in active)
    if not loading and not (last and active[0].state == "compute"):
        return None
    least = scene.limits.floor * (1.0 if last else IDLE)
    limits = {snap.rank: max(least, scene.limits.absence(snap, 0.0)) + late for snap in active}
    if all(snap.effective > limits[snap.rank] for snap in active):
        return _stuck(scene, limits)
    return None


def _stuck(scene: Scene, limits: Mapping[int, float]) -> Trouble:
    worst = max((scene.snaps[rank] for rank in limits), key=lambda snap: snap.effective)
    kind: TroubleKind = "busy" if worst.cpu > 0.5 * worst.effective else "blocked"
    if worst.state == "input":
        kind = "input"
    limit = round(limits[worst.rank], 3)
    return scene.tell(kind, limits, about=scene.awaited(limits), certainty="timeout", limit=limit)


class Transfers:
    """Collectives that everybody has entered and nobody gets out of."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self.hosts = hosts
        self.suspects: tuple[int, ...] = ()

    def judge(
        self, scene: Scene, found: Mapping[Where, Wait], late: float, evidence: Sequence[Resend]
    ) -> Trouble | None:
        complete = [where for where, wait in found.items() if not wait.missing and scene.members(where[0])]
        scene.complete = {where: self._since(scene, where, found[where]) for where in complete}
        standing = {where: self._standing(scene, where, found[where]) for where in complete}
        suspected = {rank for where, age in standing.items() if age > SUSPECT for rank in scene.members(where[0])}
        self.suspects = tuple(sorted(suspected))
        for where, age in sorted(standing.items(), key=lambda item: -item[1]):
            one = scene.snaps[found[where].blocked[0]]
            resends = [
                e for e in evidence if e.rank in scene.members(where[0]) and e.retransmits >= RESENT and e.unacked
            ]
            limit = (EVIDENT if resends else scene.limits.transfer(one)) + late
            if age > limit:
                return self._trouble(scene, found[where], one, resends, limit)
        return None

    @staticmethod
    def _since(scene: Scene, where: Where, wait: Wait) -> float:
        """When the last one came in, or when it was seen to be so if some are out of it already."""
        known = scene.complete.get(where, scene.now)
        if len(wait.blocked) < len(scene.members(where[0])):
            return known
        return min(known, scene.now - min(scene.snaps[rank].effective for rank in wait.blocked))

    @staticmethod
    def _standing(scene: Scene, where: Where, wait: Wait) -> float:
        """Effective seconds since the last one came in."""
        return min(scene.now - scene.complete[where], *(scene.snaps[rank].effective for rank in wait.blocked))

    def _trouble(self, scene: Scene, wait: Wait, one: Snapshot, resends: Sequence[Resend], limit: float) -> Trouble:
        hosts = {(self.hosts[e.rank], e.peer) for e in resends if e.rank < len(self.hosts)}
        evidence = tuple(
            f"Rank {e.rank} has {e.unacked} bytes on the way to {e.peer} that were sent {e.retransmits + 1} times."
            for e in sorted(set(resends))
        )
        return scene.tell(
            "network",
            {e.rank for e in resends} or wait.blocked,
            about=current(one),
            links=tuple(sorted(hosts)),
            certainty="evidence" if resends else "timeout",
            limit=round(limit, 3),
            evidence=evidence,
        )

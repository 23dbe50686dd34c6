"""Rules about calls that do not fit together: in one place of a sequence, or in a circle. Certain, without a limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from doctor.smoke.hang.state import Scene
from doctor.smoke.hang.traces import form
from doctor.smoke.hang.wait_graph import Wait, Where, deadlock
from doctor.smoke.model import Call, Snapshot, Trouble, TroubleKind
from doctor.smoke.run.describe import current

ANSWER, ARRIVAL = 0.3, 3.0
"""Seconds that the others of a group get to show their side of a mismatch, and those on their way, at most."""
STANDING = 0.5
"""Effective seconds that a circle must have stood still when one of its ranks may get out by itself."""
HABIT = "Rank {} departs from its own previous step; the others do as before."
MAJORITY = "The others of the group agree."
AHEAD = "It has gone on to another layout or stage while the others are still in this one."
PEERS = "The other side calls the same as ranks of other groups."
AMBIGUOUS = "Ambiguous: either side may be the wrong one."


class Clash:
    """Two ranks called different things in the same place of a group's sequence."""

    def __init__(self) -> None:
        self._since: float | None = None

    def judge(self, scene: Scene) -> Trouble | None:
        if scene.ledger.clash is None:
            return None
        group, seq = scene.ledger.clash
        calls = scene.ledger.calls(group, seq)
        self._since = scene.now if self._since is None else self._since
        strays = scene.straying(calls)
        if len(strays) != 1 and self._may_hear_more(scene, scene.now - self._since):
            return None
        guilty, why = blame(scene, calls, strays)
        others = [rank for rank in sorted(calls) if rank not in guilty]
        kind: TroubleKind = "left" if sorted(guilty) == scene.ahead(calls) else "mismatch"
        sides = {rank: scene.words(call) for rank, call in sorted(calls.items())}
        return scene.tell(kind, guilty, about=calls[(others or guilty)[0]], sides=sides, evidence=(why,))

    def _may_hear_more(self, scene: Scene, waited: float) -> bool:
        """Whether another member's side may come yet, and help to tell who is wrong."""
        assert scene.ledger.clash
        if not scene.members(scene.ledger.clash[0]):
            return waited < ANSWER
        silent = scene.missing(*scene.ledger.clash)
        coming = any(rank in scene.snaps and on_its_way(scene.snaps[rank]) for rank in silent)
        return bool(silent) and waited < (ARRIVAL if coming else ANSWER)


def on_its_way(snap: Snapshot) -> bool:
    """Whether a rank seems to work, or to wait for a CPU."""
    return snap.state in ("input", "compute") and not snap.dead and snap.effective < ANSWER


def blame(scene: Scene, calls: Mapping[int, Call], strays: Sequence[int]) -> tuple[Sequence[int], str]:
    """Who made the wrong call, and how that is known."""
    if len(strays) == 1:
        return strays, HABIT.format(strays[0])
    sides: dict[object, list[int]] = {}
    for rank, call in calls.items():
        sides.setdefault(form(call), []).append(rank)
    largest = max(sides.values(), key=len)
    if len(largest) * 2 > len(calls):
        return [rank for rank in calls if rank not in largest], MAJORITY
    return undecided(scene, list(calls))


def undecided(scene: Scene, ranks: Sequence[int]) -> tuple[Sequence[int], str]:
    """Whom to blame when habit and majority do not tell."""
    if ahead := scene.ahead(ranks):
        return ahead, AHEAD
    if alone := scene.alone(ranks):
        return alone, PEERS
    return ranks, AMBIGUOUS


class Circle:
    """Ranks that wait for each other in different collectives."""

    def __init__(self) -> None:
        self._held: dict[int, Snapshot] = {}

    def judge(self, scene: Scene, found: Mapping[Where, Wait]) -> Trouble | None:
        circle = deadlock(found, scene.snaps, sure=True) or self._standing(scene, found)
        if not circle:
            return None
        strays = scene.straying(circle)
        guilty, why = (strays, HABIT.format(strays[0])) if len(strays) == 1 else undecided(scene, circle)
        others = [rank for rank in circle if rank not in guilty]
        kind: TroubleKind = "left" if sorted(guilty) == scene.ahead(circle) else "order"
        about = current(scene.snaps[(others or guilty)[0]])
        return scene.tell(kind, guilty, about=about, evidence=(why,))

    def _standing(self, scene: Scene, found: Mapping[Where, Wait]) -> list[int]:
        """A circle with a way out is one only when nobody took it: seen twice, by newer snapshots."""
        circle = deadlock(found, scene.snaps, sure=False)
        snaps = {rank: scene.snaps[rank] for rank in circle}
        held, self._held = self._held, {rank: self._oldest(snap) for rank, snap in snaps.items()}
        again = all(
            rank in held and held[rank].stamp == s.stamp and held[rank].age < s.age for rank, s in snaps.items()
        )
        return circle if again and all(snap.effective > STANDING for snap in snaps.values()) else []

    def _oldest(self, snap: Snapshot) -> Snapshot:
        before = self._held.get(snap.rank, snap)
        return before if before.stamp == snap.stamp else snap

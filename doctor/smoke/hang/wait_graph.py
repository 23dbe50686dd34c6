"""Which rank waits for which: the wait-for graph over the positions in the groups' call sequences. Pure.

Its nodes are places (group, number); a rank that is blocked in a place leads to the places in which the ranks are
blocked that have not entered it. So 500 ranks that wait for one are one node, not 500.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from doctor.analysis.collectives.waits import find_circle, must_wait
from doctor.smoke.model import Snapshot

CollectiveId = tuple[int, int]
"""Group and number."""


class Wait(NamedTuple):
    """One place that ranks are blocked in."""

    blocked_ranks: list[int]
    absent_ranks: list[int]
    """Members that have not entered it."""


def blocked_collectives(
    blocked: Iterable[Snapshot], find_absent: Callable[[int, int], list[int]]
) -> dict[CollectiveId, Wait]:
    """Every place that one of these ranks is blocked in."""
    waits: dict[CollectiveId, Wait] = {}
    for snap in blocked:
        collective_id = (snap.group, snap.seq)
        if collective_id not in waits:
            waits[collective_id] = Wait([], find_absent(*collective_id))
        waits[collective_id].blocked_ranks.append(snap.rank)
    return waits


def find_deadlock(waits: Mapping[CollectiveId, Wait], snaps: Mapping[int, Snapshot], sure: bool) -> list[int]:
    """Ranks that wait for each other in a circle, in its order; with `sure` only over waits that have no way out."""
    at = {rank: where for where, wait in waits.items() for rank in wait.blocked_ranks}
    edges: dict[CollectiveId, dict[CollectiveId, int]] = {}
    for where, wait in waits.items():
        steps = edges[where] = {}
        for other in wait.absent_ranks:
            if other not in at or at[other] in steps:  # one edge is enough: thousands may be absent
                continue
            blocked = (snaps[rank] for rank in wait.blocked_ranks)
            if sure and not all(must_wait(snap.op, snap.rank, snap.root, other) for snap in blocked):
                continue
            steps[at[other]] = other
    circle = find_circle(edges)
    return [edges[place][following] for place, following in zip(circle, [*circle[1:], *circle[:1]], strict=True)]

"""Which rank waits for which: the wait-for graph over the positions in the groups' call sequences. Pure.

Its nodes are places (group, number); a rank that is blocked in a place leads to the places in which the ranks are
blocked that have not entered it. So 500 ranks that wait for one are one node, not 500.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from doctor.analysis.collectives.waits import find_circle
from doctor.smoke.model import Snapshot

CollectiveId = tuple[int, int]
"""Group and number."""

FROM_ROOT = frozenset({"broadcast", "scatter"})
TO_ROOT = frozenset({"reduce", "gather"})


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


def must_wait(snap: Snapshot, other: int) -> bool:
    """Whether this rank cannot get out before the other has come in.

    The root of a broadcast and the sender of a message may go on once their bytes are on the way, and a broadcast
    reaches a rank without those that come after it.
    """
    if snap.op == "send":
        return False
    if snap.op in FROM_ROOT:
        return other == snap.root
    return snap.op not in TO_ROOT or snap.rank == snap.root


def find_deadlock(waits: Mapping[CollectiveId, Wait], snaps: Mapping[int, Snapshot], sure: bool) -> list[int]:
    """Ranks that wait for each other in a circle, in its order; with `sure` only over waits that have no way out."""
    at = {rank: where for where, wait in waits.items() for rank in wait.blocked_ranks}
    edges: dict[CollectiveId, dict[CollectiveId, int]] = {}
    for where, wait in waits.items():
        steps = edges[where] = {}
        for other in wait.absent_ranks:
            if other not in at or at[other] in steps:  # one edge is enough: thousands may be absent
                continue
            if sure and not all(must_wait(snaps[rank], other) for rank in wait.blocked_ranks):
                continue
            steps[at[other]] = other
    circle = find_circle(edges)
    return [edges[here][there] for here, there in zip(circle, [*circle[1:], *circle[:1]], strict=True)]

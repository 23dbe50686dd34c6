"""Who waits for whom: the wait-for graph over the places of the groups' sequences. Pure.

Its nodes are places (group, number); a rank that is blocked in a place leads to the places in which the ranks are
blocked that have not entered it. So 500 ranks that wait for one are one node, not 500.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from doctor.smoke.model import Snapshot

Where = tuple[int, int]
"""Group and number."""

FROM_ROOT = frozenset({"broadcast", "scatter"})
TO_ROOT = frozenset({"reduce", "gather"})


class Wait(NamedTuple):
    """One place that ranks are blocked in."""

    blocked: list[int]
    missing: list[int]
    """Members that have not entered it."""


def waits(blocked: Iterable[Snapshot], missing: Callable[[int, int], list[int]]) -> dict[Where, Wait]:
    """Every place that one of these ranks is blocked in."""
    found: dict[Where, Wait] = {}
    for snap in blocked:
        where = (snap.group, snap.seq)
        if where not in found:
            found[where] = Wait([], missing(*where))
        found[where].blocked.append(snap.rank)
    return found


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


def deadlock(found: Mapping[Where, Wait], snaps: Mapping[int, Snapshot], sure: bool) -> list[int]:
    """Ranks that wait for each other in a circle, in its order; with `sure` only over waits that have no way out."""
    at = {rank: where for where, wait in found.items() for rank in wait.blocked}
    nexts: dict[Where, dict[Where, int]] = {}
    for where, wait in found.items():
        steps = nexts[where] = {}
        for other in wait.missing:
            if other not in at or (sure and not all(must_wait(snaps[rank], other) for rank in wait.blocked)):
                continue
            steps.setdefault(at[other], other)
    return _circle(nexts)


def _circle(nexts: Mapping[Where, Mapping[Where, int]]) -> list[int]:
    """The ranks on the edges of the first circle found, walking in depth without recursion."""
    finished: set[Where] = set()
    for start in nexts:
        path: dict[Where, None] = {}
        walkers = [iter([start])]
        while walkers:
            where = next(walkers[-1], None)
            if where is None:
                walkers.pop()
                if path:
                    finished.add(path.popitem()[0])
            elif where in path:
                circle = list(path)[list(path).index(where) :]
                return [nexts[a][b] for a, b in zip(circle, [*circle[1:], where], strict=True)]
            elif where not in finished:
                path[where] = None
                walkers.append(iter(nexts[where]))
    return []

"""Who waits for whom: the graph of waits, its ends and its circles. Pure.

A node is a rank, or a collective in which ranks wait; an edge leads from one that waits to one that it waits for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import TypeVar

from doctor.analysis.majority import leader

Node = TypeVar("Node", bound=Hashable)
Edges = Mapping[Node, Collection[Node]]
PAIRED = frozenset({"send", "recv"})
"""Calls of two ranks."""
FROM_ROOT, TO_ROOT = frozenset({"broadcast", "scatter"}), frozenset({"reduce", "gather"})
ONE_WAY = FROM_ROOT | {"recv"}
"""Calls in which one rank alone, the root, gives what all others take."""
ROOTED = FROM_ROOT | TO_ROOT
"""Collectives in which a rank may do its part and leave before the others have begun theirs."""
MAX_STEPS = 100_000
"""Nodes that are followed from one start."""


def must_wait(operation: str, rank: int, root: int, other: int) -> bool:
    """Whether a rank cannot get out of a collective before another has come in.

    The root of a broadcast and the sender of a message may go on once their bytes are on the way, and a broadcast
    reaches a rank without those that come after it.

    >>> must_wait("all_reduce", 0, -1, 1), must_wait("broadcast", 0, 0, 1), must_wait("broadcast", 1, 0, 0)
    (True, False, True)
    """
    if operation == "send":
        return False
    return other == root if operation in FROM_ROOT else operation not in TO_ROOT or rank == root


def chain_end(start: Node, edges: Edges[Node]) -> Node | None:
    """The node at which the chain from ``start`` ends; None for a circle, or where it forks to different ends.

    A node that waits for no other node ends a chain, and so does one that waits for itself.

    >>> chain_end(0, {0: [1], 1: [2]}), chain_end(0, {0: [1, 2]}), chain_end(0, {0: [1], 1: [0]})
    (2, None, None)
    """
    ends: set[Node] = set()
    visited: set[Node] = set()
    stack = [start]
    while stack and len(visited) < MAX_STEPS:
        node = stack.pop()
        if node in visited:
            continue
        visited.add(node)
        targets = edges.get(node, ())
        if not targets or node in targets:
            ends.add(node)
        else:
            stack += targets
    return ends.pop() if len(ends) == 1 else None


def find_circle(edges: Edges[Node]) -> list[Node]:
    """The nodes of a circle, in its order; empty without one. Walks in depth without recursion.

    >>> find_circle({0: [1], 1: [2, 3], 3: [1]}), find_circle({0: [1], 1: []})
    ([1, 3], [])
    """
    finished: set[Node] = set()
    for start in edges:
        path: dict[Node, None] = {}
        walkers = [iter([start])]
        while walkers:
            node = next(walkers[-1], None)
            if node is None:
                walkers.pop()
                if path:
                    finished.add(path.popitem()[0])
            elif node in path:
                return list(path)[list(path).index(node) :]
            elif node not in finished:
                path[node] = None
                walkers.append(iter(edges.get(node, ())))
    return []


def most_awaited(targets: Iterable[Node], least: int = 1, times: int = 1) -> Node | None:
    """The node that ``least`` or more wait for, and more than ``times`` as many as for any other; None without it.

    >>> most_awaited([2, 2, 1]), most_awaited([2, 1]), most_awaited([2, 2, 1], times=2)
    (2, None, None)
    """
    counts = Counter(targets)
    for best in leader(counts):
        if counts[best] >= least and all(times * counts[node] < counts[best] for node in counts.keys() - {best}):
            return best
    return None

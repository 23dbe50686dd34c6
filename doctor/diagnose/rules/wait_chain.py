"""Rule "wait chain": each waiting rank names the one it waits for; the end of the chain is the culprit."""

from __future__ import annotations

from doctor.diagnose.case import Case, Process
from doctor.diagnose.cause import Cause, Culprit, Undecidable, culprit_of, first_evidence
from doctor.diagnose.events import Event
from doctor.diagnose.rules.named import count_ranks
from doctor.engine.sanitize import count_noun

SELF = "local"
"""HCCL's word for a rank that waits for itself."""
_MAX_STEPS = 100_000


def wait_chain(case: Case) -> list[Cause] | Undecidable:
    """Follows the edges from rank to rank. A cycle is a deadlock; two that wait for each other share a link."""
    edges, proof = _edges(case)
    if not edges:
        return []
    ends = {start: _end(start, edges) for start in edges}
    real = [end for end in ends.values() if end is not None]
    if not real:
        return _cycle(case, edges, proof)
    counted = sorted(set(real), key=lambda end: (-real.count(end), _sort_key(end)))
    best = counted[0]
    if len(counted) > 1 and real.count(counted[1]) == real.count(best):
        return []
    culprit = _culprit(case, best)
    waiters = sorted({start for start, end in ends.items() if end == best and start != best}, key=_sort_key)
    if best in edges and not waiters:
        return []
    reason = "waits for itself" if SELF in edges.get(best, ()) else "reports no rank that it waits for"
    length = count_noun(len(waiters) or 1, "rank")
    summary = f"the wait chain of {length} ends at {culprit.name}, which {reason}"
    events = first_evidence([*proof.get(best, []), *(event for start in waiters for event in proof[start][:1])])
    return [Cause(events[0].signature, "wait chain", "likely", (culprit,), summary, events)]


Node = int | str | Culprit
"""A rank in the world, or a place that no log shows."""


def _edges(case: Case) -> tuple[dict[Node, set[Node]], dict[Node, list[Event]]]:
    edges: dict[Node, set[Node]] = {}
    proof: dict[Node, list[Event]] = {}
    for process in case.processes:
        if process.rank is None:
            continue
        for event in process.events:
            if case.role(event) not in ("victim", "ambiguous", "link"):
                continue
            target = _target(case, process, event)
            if target is not None:
                edges.setdefault(process.rank, set()).add(SELF if target == process.rank else target)
                proof.setdefault(process.rank, []).append(event)
    return edges, proof


def _target(case: Case, process: Process, event: Event) -> Node | None:
    """The rank for which the process waits, as this line shows it."""
    values = event.values
    if values.get("peer_group_rank") == SELF:
        return SELF
    number = values.get("peer_group_rank", "")
    if number.isdecimal() and int(number) < 1_000_000:
        return _world_rank(case, process, int(number), values.get("group", ""))
    number = values.get("peer_rank", "")
    if number.isdecimal() and len(number) < 7:
        return int(number)
    number = values.get("peer_device", "")
    if number.isdecimal() and len(number) < 5 and process.host:
        peer = case.process_at(process.host, int(number))
        return peer.rank if peer and peer.rank is not None else Culprit(None, process.host, int(number))
    return None


def _world_rank(case: Case, process: Process, number: int, group: str) -> int:
    """The rank in the world of a rank in a communicator; the same number where the communicator is not known."""
    names = [group] if group in process.group_ranks else sorted(process.group_ranks)
    if len(names) == 1:
        for other in case.processes:
            if other.group_ranks.get(names[0]) == number and other.rank is not None:
                return other.rank
    return number


def _end(start: Node, edges: dict[Node, set[Node]]) -> Node | None:
    """The node at which the chain from ``start`` ends; None for a cycle or where it forks to different ends."""
    ends: set[Node] = set()
    visited: set[Node] = set()
    stack: list[Node] = [start]
    while stack and len(visited) < _MAX_STEPS:
        node = stack.pop()
        if node in visited:
            continue
        visited.add(node)
        targets = edges.get(node, set())
        if SELF in targets or not targets:
            ends.add(node)
        else:
            stack += [target for target in targets if target not in visited]
    return next(iter(ends)) if len(ends) == 1 else None


def _cycle(case: Case, edges: dict[Node, set[Node]], proof: dict[Node, list[Event]]) -> list[Cause] | Undecidable:
    nodes = sorted((node for node in edges if isinstance(node, int)), key=_sort_key)
    if any(_end(node, edges) is not None for node in nodes) or not all(_reaches(node, node, edges) for node in nodes):
        return []
    ranks = [node for node in nodes if isinstance(node, int)]
    events = first_evidence(event for node in nodes for event in proof[node][:1])
    if len(ranks) == 2:
        culprits = tuple(_culprit(case, rank) for rank in ranks)
        summary = f"{count_ranks(ranks)} wait for each other: the link between them, or two different operations"
        return [Cause(events[0].signature, "wait chain", "possible", culprits, summary, events)]
    return Undecidable(
        f"{count_ranks(ranks)} wait for each other in a cycle: a deadlock of the program, no single rank is to blame",
        ("the order of collectives on these ranks (flight recorder, TORCH_DISTRIBUTED_DEBUG=DETAIL)",),
    )


def _reaches(start: Node, goal: Node, edges: dict[Node, set[Node]]) -> bool:
    stack, visited = list(edges.get(start, ())), set()
    while stack:
        node = stack.pop()
        if node == goal:
            return True
        if node not in visited:
            visited.add(node)
            stack += edges.get(node, ())
    return False


def _culprit(case: Case, node: Node) -> Culprit:
    if isinstance(node, Culprit):
        return node
    process = case.process_of_rank(node) if isinstance(node, int) else None
    if process:
        return culprit_of(process)
    return Culprit(node if isinstance(node, int) else None)


def _sort_key(node: Node) -> tuple[bool, int, str]:
    return (not isinstance(node, int), node if isinstance(node, int) else 0, str(node))

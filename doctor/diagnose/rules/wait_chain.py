"""Rule "wait chain": each waiting rank names the one it waits for; the end of the chain is the culprit."""

from __future__ import annotations

from doctor.analysis.collectives.waits import chain_end, find_circle, most_awaited
from doctor.diagnose.case import Case
from doctor.diagnose.diagnosis import NEEDED_CALLS, Cause, Culprit, Undecidable, culprit_of_rank, first_evidence
from doctor.diagnose.events import Event
from doctor.diagnose.process import Process
from doctor.diagnose.rules.named import count_ranks
from doctor.engine.sanitize import count_noun
from doctor.engine.texts import filled

SELF = "local"
"""HCCL's word for a rank that waits for itself."""
Node = int | Culprit
"""A rank in the world, or a place that no log shows."""


def wait_chain(case: Case) -> list[Cause] | Undecidable:
    """Follows the edges from rank to rank. A cycle is a deadlock; two that wait for each other share a link."""
    edges, proof = _edges(case)
    ends = {start: end for start in edges if (end := chain_end(start, edges)) is not None}
    if not ends:
        return _cycle(case, find_circle(edges), edges, proof)
    best = most_awaited(ends.values())
    waiters = sorted(start for start, end in ends.items() if isinstance(start, int) and end == best != start)
    if best is None or (best in edges and not waiters):
        return []
    culprit = _culprit(case, best)
    reason = "waits for itself" if best in edges else "reports no rank that it waits for"
    length = count_noun(len(waiters) or 1, "rank")
    summary = filled("the wait chain of {0} ends at {1}, which {2}", length, culprit.name, reason)
    lines = proof[best] if isinstance(best, int) and best in proof else []
    events = first_evidence([*lines, *(event for start in waiters for event in proof[start][:1])])
    return [Cause(events[0].signature, "wait chain", "likely", (culprit,), summary, events)]


def _edges(case: Case) -> tuple[dict[Node, set[Node]], dict[Node, list[Event]]]:
    """For whom each rank waits, and the lines that show it."""
    edges: dict[Node, set[Node]] = {}
    proof: dict[Node, list[Event]] = {}
    for process in case.processes:
        for event in case.waits(process):
            target = _target(case, process, event)
            if process.rank is not None and target is not None:
                edges.setdefault(process.rank, set()).add(target)
                proof.setdefault(process.rank, []).append(event)
    return edges, proof


def _target(case: Case, process: Process, event: Event) -> Node | None:
    """The rank for which the process waits, as this line shows it."""
    values = event.values
    if values.get("peer_group_rank") == SELF:
        return process.rank
    number = values.get("peer_group_rank", "")
    if number.isdecimal() and int(number) < 1_000_000:
        return _world_rank(case, process, event, int(number))
    number = values.get("peer_rank", "")
    if number.isdecimal() and len(number) < 7:
        return int(number)
    number = values.get("peer_device", "")
    if number.isdecimal() and len(number) < 5 and process.host:
        peer = case.process_at(process.host, int(number))
        return peer.rank if peer and peer.rank is not None else Culprit(None, process.host, int(number))
    return None


def _world_rank(case: Case, process: Process, event: Event, number: int) -> Node:
    """The rank in the world of a rank in a communicator. Where the communicator is not known, the same number, but not
    if the waiting process has another number in the two: then the other one is named by its communicator.
    """
    group = event.values.get("group", "")
    names = [group] if group in process.group_ranks else sorted(process.group_ranks)
    if len(names) == 1:
        for other in case.processes:
            if other.group_ranks.get(names[0]) == number and other.rank is not None:
                return other.rank
    member = event.values.get("own_group_rank", "")
    if member and process.rank is not None and int(member) != process.rank:
        return Culprit(label=filled("rank {0} of that communicator", number))
    return number


def _cycle(
    case: Case, circle: list[Node], edges: dict[Node, set[Node]], proof: dict[Node, list[Event]]
) -> list[Cause] | Undecidable:
    """A circle of all ranks that wait: what others do that wait for it is another rule's."""
    if not circle or set(circle) != set(edges):
        return []
    ranks = sorted(rank for rank in edges if isinstance(rank, int))
    events = first_evidence(event for rank in ranks for event in proof[rank][:1])
    if len(ranks) == 2:
        culprits = tuple(_culprit(case, rank) for rank in ranks)
        summary = filled(
            "{0} wait for each other: the link between them, or two different operations", count_ranks(ranks)
        )
        return [Cause(events[0].signature, "wait chain", "possible", culprits, summary, events)]
    text = "{0} wait for each other in a cycle: a deadlock of the program, no single rank is to blame"
    return Undecidable(filled(text, count_ranks(ranks)), NEEDED_CALLS)


def _culprit(case: Case, node: Node) -> Culprit:
    return node if isinstance(node, Culprit) else culprit_of_rank(case, node)

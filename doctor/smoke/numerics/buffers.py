"""Classifies wrong buffer contents: never written, incomplete, another rank's, one flipped bit. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from doctor.engine.texts import filled
from doctor.facts.smoke.collectives import CollectiveWrong

BLOCK_OPS = ("all_gather", "all_to_all")
"""Results made of one block for each member, in the group's order."""
IN_PLACE = ("broadcast", "reduce", "all_reduce")
UNTOUCHED_OFFSET = 13
"""Room for a result holds what is expected, and this more, until it is written."""

CHANGED = {
    "input": "what the rank gave to the call has changed in its memory",
    "result": "the same memory gave two values when it was read twice",
}
"""Two readings of one rank differ: no other rank has a part in that."""


def describe_damage(event: CollectiveWrong, group: Sequence[int]) -> str:
    """The damage as text; empty when it matches no known pattern."""
    if event.reread:
        return CHANGED[event.reread]
    got, expected = event.got, event.expected
    if isinstance(got, str) or isinstance(expected, str) or got is None or expected is None:
        return ""
    if got - expected == UNTOUCHED_OFFSET:
        return "nothing was written there"
    other = _sender(event, group)
    if other >= 0:
        return filled("it is the data of rank {0}: ranks or devices are swapped", other)
    if event.wrong == 1 and event.numel > 1:
        return "a single element: a flipped bit"
    if event.index and event.wrong == event.numel - event.index:
        return "all elements from there on: an incomplete transfer"
    return ""


def is_untouched(event: CollectiveWrong, group: Sequence[int]) -> bool:
    """Whether the whole result is what lay there before the call: of one in place, what the rank gave to it."""
    if event.wrong < event.numel or not isinstance(event.got, int | float) or event.dtype == "bool":
        return False
    if event.op in IN_PLACE:
        return sent_value(max(group, default=0) + 1, event.rank, event.offset + event.index) == event.got
    return isinstance(event.expected, int | float) and event.got - event.expected == UNTOUCHED_OFFSET


def source_of(event: CollectiveWrong, group: Sequence[int]) -> int:
    """The rank whose values lie at the first wrong place; -1 where they come from several."""
    if event.op == "broadcast" or (event.op == "send_recv" and event.root >= 0):
        return event.root
    if event.op in BLOCK_OPS:
        return group[min(event.index * len(group) // max(event.numel, 1), len(group) - 1)]
    return group[group.index(event.rank) - 1] if event.op == "send_recv" else -1


def _sender(event: CollectiveWrong, group: Sequence[int]) -> int:
    """Another member, if a whole block is wrong and its first element is what that one sends there; or -1."""
    blocks = event.op in BLOCK_OPS
    count = event.numel // len(group) if blocks and group else event.numel
    between_two = event.op == "send_recv" and event.root >= 0  # they exchange other numbers than `sent_value`
    if event.rank not in group or between_two or event.dtype == "bool" or event.wrong < count:
        return -1
    start = event.offset + (group.index(event.rank) * count if event.op == "all_to_all" else 0)
    index = event.index % count if blocks else event.index
    source = source_of(event, group)
    held = [
        rank for rank in group if rank != source >= 0 and sent_value(max(group) + 1, rank, start + index) == event.got
    ]
    return held[0] if len(held) == 1 else -1


def sent_value(world: int, rank: int, index: int) -> int:
    """Element `index` of what a rank sends in the collectives stage, in worlds of up to 11 ranks; else -1."""
    return (7 * index + 3 * rank) % 11 + 1 if world <= 11 else -1

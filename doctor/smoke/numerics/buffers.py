"""What the wrong contents of a buffer look like: never written, cut short, another rank's, one flipped bit. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from doctor.facts.smoke import Wrong

BLOCKS = ("all_gather", "all_to_all")
"""Results made of one block for each member, in the group's order."""
UNTOUCHED = 13
"""Room for a result holds what is expected, and this more, until it is written."""


def looks(one: Wrong, group: Sequence[int]) -> str:
    """The damage in words; empty when it looks like nothing known."""
    got, expected = one.got, one.expected
    if isinstance(got, str) or isinstance(expected, str) or got is None or expected is None:
        return ""
    if got - expected == UNTOUCHED:
        return "nothing was ever written there"
    other = _sender(one, group)
    if other >= 0:
        return f"it is what rank {other} sends: ranks or devices changed places"
    if one.wrong == 1 and one.numel > 1:
        return "one element alone: a bit that flipped"
    if one.index and one.wrong == one.numel - one.index:
        return "all from there on: a transfer cut short"
    return ""


def _source(one: Wrong, group: Sequence[int]) -> int:
    """The rank whose element it should be; -1 where that is not one rank."""
    if one.op == "broadcast":
        return one.root
    if one.rank not in group:
        return -1
    if one.op in BLOCKS:
        return group[min(one.index * len(group) // one.numel, len(group) - 1)]
    return group[group.index(one.rank) - 1] if one.op == "send_recv" else -1


def _sender(one: Wrong, group: Sequence[int]) -> int:
    """Another member, if a whole block is wrong and its first element is what that one sends there; or -1."""
    blocks = one.op in BLOCKS
    here, count = _source(one, group), one.numel // len(group) if blocks and group else one.numel
    if here < 0 or one.dtype == "bool" or one.wrong < count:
        return -1
    start = group.index(one.rank) * count if one.op == "all_to_all" else 0
    index = one.index % count if blocks else one.index
    held = [rank for rank in group if rank != here and sent(max(group) + 1, rank, start + index) == one.got]
    return held[0] if len(held) == 1 else -1


def sent(world: int, rank: int, index: int) -> int:
    """Element `index` of what a rank sends in the collectives stage, in worlds of up to 11 ranks; else -1."""
    return (7 * index + 3 * rank) % 11 + 1 if world <= 11 else -1

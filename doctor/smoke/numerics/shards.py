"""The data that each rank read, compared with the expected data. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from doctor.analysis.values.splits import format_ranges, shared_and_unread
from doctor.engine.texts import filled, joined
from doctor.smoke.numerics.defect import Defect
from doctor.smoke.numerics.layout_trace import LayoutTrace
from doctor.smoke.numerics.reference_run import MajorityReference

MAX_BLOCKS = 60
"""Blocks of a step that a rank reports at most."""
FOREIGN = -1
"""Stands for data that is in no block of the step."""


class Misread(msgspec.Struct, frozen=True):
    """What one rank read in one step."""

    rank: int
    step: int
    expected: tuple[int, ...]
    read: tuple[int, ...]


def blocks_of(trace: LayoutTrace, rank: int, total: int) -> tuple[int, ...]:
    """The blocks that the rank should read, as far as it tells of them."""
    dp = trace.layout.dp
    index = trace.coordinates(rank)[1]
    return tuple(range(index * total // dp, (index + 1) * total // dp))[:MAX_BLOCKS]


def find_misread(trace: LayoutTrace, reference: MajorityReference) -> list[Misread]:
    """Every rank and step whose data are not the planned ones, the earliest first."""
    total = reference.blocks
    misreads = []
    for step, events in enumerate(trace.steps):
        for rank, event in sorted(events.items()):
            expected = blocks_of(trace, rank, total)
            ours = reference.data(step, expected)
            if total and event.blocks and (event.blocks != expected or (ours and event.ids and event.ids != ours[0])):
                claims = zip(event.blocks, event.ids, strict=False)  # the shorter of both
                sources = (
                    _find_block(reference, step, block, ids, event.masks[place : place + 1], expected)
                    for place, (block, ids) in enumerate(claims)
                )
                misreads.append(Misread(rank, step, expected, tuple(sources)))
    return misreads


def _find_block(
    reference: MajorityReference, step: int, claimed: int, ids: int, mask: tuple[int, ...], expected: Sequence[int]
) -> int:
    digests, masks = reference.ids.get(step, ()), reference.masks.get(step, ())
    alike = [block for block, digest in enumerate(digests) if digest == ids]
    # Few different rows exist, so two blocks may have the same tokens; their masks tell them apart.
    best = [block for block in alike if (masks[block],) == mask] or alike
    for sure in (claimed, *expected):
        if sure in best:
            return sure
    return best[0] if best else FOREIGN


def shard_defects(trace: LayoutTrace, reference: MajorityReference, wrong: Sequence[Misread]) -> Iterator[Defect]:
    """One defect a layout: ranks that read a wrong block, with the right one, and blocks that none or two read."""
    if not wrong:
        return
    step = wrong[0].step
    now = {misread.rank: misread for misread in wrong if misread.step == step}
    unread_blocks, twice = _coverage(trace, reference, step, now)
    kind, template = _kind_and_template(now, unread_blocks, twice)
    values = {
        "read": {f"rank {rank}": _format_blocks(misread.read) for rank, misread in sorted(now.items())[:8]},
        "expected": {f"rank {rank}": _format_blocks(misread.expected) for rank, misread in sorted(now.items())[:8]},
        "missing": format_ranges(unread_blocks),
        "twice": format_ranges(twice),
        "total": reference.blocks,
    }
    ranks = tuple(sorted({misread.rank for misread in wrong}))
    yield Defect("smoke-shards-wrong", kind, step, ranks, template, values, root=True, trace=trace)


def _coverage(
    trace: LayoutTrace, reference: MajorityReference, step: int, now: dict[int, Misread]
) -> tuple[list[int], list[int]]:
    """Blocks that no rank reads, and those that several data-parallel indices read."""
    read: dict[int, set[int]] = {}
    planned: set[int] = set()
    for rank in trace.steps[step]:
        rank_blocks = blocks_of(trace, rank, reference.blocks)
        planned.update(rank_blocks)
        read.setdefault(trace.coordinates(rank)[1], set()).update(now[rank].read if rank in now else rank_blocks)
    shared, unread = shared_and_unread(read, planned)
    return unread, [block for block in shared if block != FOREIGN]


def _kind_and_template(now: dict[int, Misread], unread_blocks: Sequence[int], twice: Sequence[int]) -> tuple[str, str]:
    start = "{who}: the data of step {step} are blocks {read}, expected {expected}"
    if any(FOREIGN in misread.read for misread in now.values()):
        return "foreign", filled("{0}: tokens that are in no block of this step", start)
    if unread_blocks and twice:
        return "overlapping", joined(
            "", (start, "; blocks {twice} are read twice and {missing} not at all, of {total}")
        )
    if unread_blocks:
        return "missing", joined("", (start, "; blocks {missing} of {total} are not read"))
    if twice:
        return "duplicated", joined("", (start, "; blocks {twice} of {total} are read by two data-parallel ranks"))
    return "permuted", filled("{0}; every block is read once, by the wrong rank", start)


def _format_blocks(blocks: Sequence[int]) -> str:
    text = format_ranges(block for block in blocks if block != FOREIGN)
    return text if FOREIGN not in blocks else filled("{0} and unknown ones", text) if text != "none" else "unknown ones"

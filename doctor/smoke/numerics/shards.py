"""Which data each rank read, against what it should have read. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from doctor.facts.smoke import Stepped
from doctor.smoke.numerics.defect import Defect, spans
from doctor.smoke.numerics.layout_trace import Course
from doctor.smoke.numerics.reference_run import Twins

TOLD = 60
"""Blocks of a step that a rank tells of at most."""
FOREIGN = -1
"""Stands for data that is in no block of the step."""


class Misread(msgspec.Struct, frozen=True):
    """What one rank read in one step."""

    rank: int
    step: int
    expected: tuple[int, ...]
    read: tuple[int, ...]


def blocks_of(course: Course, rank: int, total: int) -> tuple[int, ...]:
    """The blocks that the rank should read, as far as it tells of them."""
    dp = course.layout.dp
    index = course.place(rank)[1]
    return tuple(range(index * total // dp, (index + 1) * total // dp))[:TOLD]


def misread(course: Course, twin: Twins) -> list[Misread]:
    """Every rank and step whose data are not the planned ones, the earliest first."""
    total = twin.blocks
    found = []
    for step, told in course.after():
        for rank, said in sorted(told.items()):
            expected = blocks_of(course, rank, total)
            ours = twin.data(step, expected)
            if total and said.blocks and (said.blocks != expected or (ours and said.ids and said.ids != ours[0])):
                found.append(Misread(rank, step, expected, _read(said, step, twin, expected)))
    return found


def _read(said: Stepped, step: int, twin: Twins, expected: Sequence[int]) -> tuple[int, ...]:
    """The blocks that the rank really read, by what it says of them and by their digests."""
    return tuple(
        _block(twin, step, said.blocks[place], said.ids[place], said.masks[place : place + 1], expected)
        for place in range(min(len(said.blocks), len(said.ids)))
    )


def _block(twin: Twins, step: int, claimed: int, ids: int, mask: tuple[int, ...], expected: Sequence[int]) -> int:
    known, masks = twin.ids.get(step, ()), twin.masks.get(step, ())
    alike = [block for block, one in enumerate(known) if one == ids]
    # Few different rows exist, so two blocks may have the same tokens; their masks tell them apart.
    best = [block for block in alike if (masks[block],) == mask] or alike
    for sure in (claimed, *expected):
        if sure in best:
            return sure
    return best[0] if best else FOREIGN


def shards_wrong(course: Course, twin: Twins, wrong: Sequence[Misread]) -> Iterator[Defect]:
    """One defect a layout: who reads what instead of what, and what nobody reads or two read."""
    if not wrong:
        return
    step = wrong[0].step
    now = {one.rank: one for one in wrong if one.step == step}
    missing, twice = _coverage(course, twin, step, now)
    kind, template = _words(now, missing, twice)
    values = {
        "read": {f"rank {rank}": _blocks(one.read) for rank, one in sorted(now.items())[:8]},
        "expected": {f"rank {rank}": _blocks(one.expected) for rank, one in sorted(now.items())[:8]},
        "missing": spans(missing),
        "twice": spans(twice),
        "total": twin.blocks,
    }
    ranks = tuple(sorted({one.rank for one in wrong}))
    yield Defect("smoke-shards-wrong", kind, course, step, ranks, template, values, root=True)


def _coverage(course: Course, twin: Twins, step: int, now: dict[int, Misread]) -> tuple[list[int], list[int]]:
    """Blocks that nobody reads, and those that several data-parallel indices read."""
    readers: dict[int, set[int]] = {}
    planned: set[int] = set()
    for rank in course.steps[step]:
        own = blocks_of(course, rank, twin.blocks)
        planned.update(own)
        for block in now[rank].read if rank in now else own:
            readers.setdefault(block, set()).add(course.place(rank)[1])
    twice = [block for block, by in sorted(readers.items()) if len(by) > 1 and block != FOREIGN]
    return sorted(planned - set(readers)), twice


def _words(now: dict[int, Misread], missing: Sequence[int], twice: Sequence[int]) -> tuple[str, str]:
    start = "{who}: the data of step {step} are blocks {read}, expected {expected}"
    if any(FOREIGN in one.read for one in now.values()):
        return "foreign", start + ": tokens that are in no block of this step"
    if missing and twice:
        return "overlapping", start + "; blocks {twice} are read twice and {missing} by nobody, of {total}"
    if missing:
        return "missing", start + "; nobody reads blocks {missing} of {total}"
    if twice:
        return "duplicated", start + "; blocks {twice} of {total} are read by two data-parallel ranks"
    return "permuted", start + "; every block is read once, by the wrong rank"


def _blocks(blocks: Sequence[int]) -> str:
    known = spans(block for block in blocks if block != FOREIGN)
    return known if FOREIGN not in blocks else f"{known} and unknown ones" if known != "none" else "unknown ones"

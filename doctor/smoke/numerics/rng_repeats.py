"""Data-parallel ranks draw something else each, or do not. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from doctor.facts.smoke import Stepped
from doctor.smoke.numerics.defect import Defect, spans
from doctor.smoke.numerics.layout_trace import Course
from doctor.smoke.numerics.reference_run import Twins
from doctor.smoke.numerics.rng_draws import drawn, generators, names
from doctor.smoke.numerics.shards import blocks_of

REPEATED = "smoke-mask-repeated"


def repeated(course: Course, twin: Twins, steps: Sequence[dict[int, Stepped]]) -> Iterator[Defect]:
    """Ranks that drew the same numbers for different data: told once, at the first step. ``steps`` are well read."""
    for step, said in enumerate(steps):
        pairs: dict[tuple[int, ...], list[str]] = {}
        for name in generators(said.values()):
            for group in course.replicas:
                for alike in _alike(drawn({rank: said[rank] for rank in group if rank in said}, name)):
                    pairs.setdefault(alike, []).append(name)
        if pairs:
            ranks = sorted({rank for alike in pairs for rank in alike})
            late = [rank for rank in ranks if _wrong(course, twin, step, rank, said[rank])]
            yield _defect(course, step, ranks, late, sorted({name for own in pairs.values() for name in own}))
            return


def _defect(course: Course, step: int, ranks: Sequence[int], late: Sequence[int], by: list[str]) -> Defect:
    """``late``: those of the ranks whose masks are not those of their own data."""
    others = set(ranks) - set(late)
    everybody = len(late) > 1 and set(late) == {rank for rank in course.ranks if course.place(rank)[1]}
    template = "{who}: {by} are those of {origin}, for other data, from step {step} on"
    if everybody:
        template = "on all data-parallel ranks {by} are those of the first one, for other data, from step {step} on"
    origin = f"rank {spans(others)}" if late and others else "each other"
    values = {"by": names(by), "generators": by, "origin": origin}
    blamed = () if everybody else tuple(late or ranks)
    return Defect(REPEATED, "all" if everybody else "draws", course, step, blamed, template, values, root=True)


def _wrong(course: Course, twin: Twins, step: int, rank: int, said: Stepped) -> bool:
    """The rank's masks are not those of its own data."""
    ours = twin.data(step, blocks_of(course, rank, twin.blocks))
    return twin.sound and ours is not None and said.masks != ours[1]


def _alike(drawn: dict[int, int]) -> Iterator[tuple[int, ...]]:
    holders: dict[int, list[int]] = {}
    for rank, value in drawn.items():
        if value:
            holders.setdefault(value, []).append(rank)
    return (tuple(sorted(ranks)) for ranks in holders.values() if len(ranks) > 1)

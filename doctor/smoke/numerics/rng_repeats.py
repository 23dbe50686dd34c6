"""Data-parallel ranks draw something else each, or do not. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from doctor.analysis.values.splits import format_ranges, holders_of_same
from doctor.facts.smoke import TrainingStep
from doctor.smoke.numerics.defect import Defect
from doctor.smoke.numerics.layout_trace import LayoutTrace
from doctor.smoke.numerics.reference_run import MajorityReference
from doctor.smoke.numerics.rng_draws import describe_generators, draws_by_rank, used_generators
from doctor.smoke.numerics.shards import blocks_of

REPEATED = "smoke-mask-repeated"


def repeated_draws(
    trace: LayoutTrace, reference: MajorityReference, steps: Sequence[dict[int, TrainingStep]]
) -> Iterator[Defect]:
    """Ranks that drew the same numbers for different data: told once, at the first step. ``steps`` are well read."""
    for step, events in enumerate(steps):
        pairs: dict[tuple[int, ...], list[str]] = {}
        for name in used_generators(events.values()):
            for group in trace.replicas:
                members = {rank: events[rank] for rank in group if rank in events}
                for alike in holders_of_same(draws_by_rank(members, name)):
                    pairs.setdefault(alike, []).append(name)
        if pairs:
            ranks = sorted({rank for alike in pairs for rank in alike})
            late = [rank for rank in ranks if _wrong(trace, reference, step, rank, events[rank])]
            yield _defect(
                trace, step, ranks, late, sorted({name for pair_names in pairs.values() for name in pair_names})
            )
            return


def _defect(trace: LayoutTrace, step: int, ranks: Sequence[int], late: Sequence[int], by: list[str]) -> Defect:
    """``late``: those of the ranks whose masks are not those of their own data."""
    others = set(ranks) - set(late)
    everybody = len(late) > 1 and set(late) == {rank for rank in trace.ranks if trace.coordinates(rank)[1]}
    template = "{who}: {by} are those of {origin}, for other data, from step {step} on"
    if everybody:
        template = "on all data-parallel ranks {by} are those of the first one, for other data, from step {step} on"
    origin = f"rank {format_ranges(others)}" if late and others else "each other"
    values = {"by": describe_generators(by), "generators": by, "origin": origin}
    blamed = () if everybody else tuple(late or ranks)
    return Defect(REPEATED, "all" if everybody else "draws", step, blamed, template, values, root=True, trace=trace)


def _wrong(trace: LayoutTrace, reference: MajorityReference, step: int, rank: int, event: TrainingStep) -> bool:
    """The rank's masks are not those of its own data."""
    ours = reference.data(step, blocks_of(trace, rank, reference.blocks))
    return reference.sound and ours is not None and event.masks != ours[1]

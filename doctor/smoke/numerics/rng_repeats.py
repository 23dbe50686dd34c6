"""Random numbers of the ranks by generator, and data-parallel ranks that draw the same. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from doctor.analysis.values.splits import format_ranges, names_held_alike
from doctor.engine.texts import enumerated, filled
from doctor.facts.smoke.training import TrainingStep
from doctor.smoke.numerics.defect import Defect
from doctor.smoke.numerics.layout_trace import LayoutTrace, field_values
from doctor.smoke.numerics.reference_run import MajorityReference
from doctor.smoke.numerics.shards import Misread, blocks_of

REPEATED = "smoke-mask-repeated"


def repeated_draws(
    trace: LayoutTrace, reference: MajorityReference, steps: Sequence[dict[int, TrainingStep]]
) -> Iterator[Defect]:
    """Ranks that drew the same numbers for different data: told once, at the first step. ``steps`` are well read."""
    for step, events in enumerate(steps):
        pairs: dict[tuple[int, ...], list[str]] = {}
        for group in trace.replicas:
            for alike, names in names_held_alike(field_values(events, group, "rng")).items():
                pairs.setdefault(alike, []).extend(names)
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


def correctly_read_steps(trace: LayoutTrace, wrong: Iterable[Misread]) -> list[dict[int, TrainingStep]]:
    """The steps, without ranks that read other data than planned: they draw for other blocks, too."""
    elsewhere = {(misread.rank, misread.step) for misread in wrong}
    if not elsewhere:
        return list(trace.steps)
    return [
        {rank: event for rank, event in events.items() if (rank, step) not in elsewhere}
        for step, events in trace.numbered_steps()
    ]


def used_generators(events: Iterable[TrainingStep]) -> list[str]:
    """The names of all generators that were used."""
    return list(dict.fromkeys(name for event in events for name in event.rng))


def draws_by_rank(events: dict[int, TrainingStep], generator: str) -> dict[int, int]:
    """What each rank drew; 0 where it did not use the generator, or has none (no NumPy)."""
    return {rank: event.rng.get(generator) or 0 for rank, event in events.items()}


def describe_generators(generators: Sequence[str]) -> str:
    """Generators in words: ``python's draws and numpy's draws``."""
    phrases = [filled("{0}'s draws", name) for name in generators]
    return phrases[0] if len(phrases) == 1 else enumerated(phrases)

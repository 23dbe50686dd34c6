"""Random numbers of the ranks, by generator. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from doctor.engine.texts import enumerated, filled
from doctor.facts.smoke import TrainingStep
from doctor.smoke.numerics.layout_trace import LayoutTrace
from doctor.smoke.numerics.shards import Misread


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

"""What ranks drew at random, by generator. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from doctor.facts.smoke import Stepped
from doctor.smoke.numerics.layout_trace import Course
from doctor.smoke.numerics.shards import Misread


def well_read(course: Course, wrong: Iterable[Misread]) -> list[dict[int, Stepped]]:
    """The steps, without ranks that read other data than planned: they draw for other blocks, too."""
    elsewhere = {(one.rank, one.step) for one in wrong}
    if not elsewhere:
        return list(course.steps)
    return [{rank: one for rank, one in said.items() if (rank, step) not in elsewhere} for step, said in course.after()]


def generators(said: Iterable[Stepped]) -> list[str]:
    """The names of all generators that were used."""
    return list(dict.fromkeys(name for one in said for name in one.rng))


def drawn(said: dict[int, Stepped], generator: str) -> dict[int, int]:
    """What each rank drew; 0 where it did not use the generator, or has none (no NumPy)."""
    return {rank: one.rng.get(generator) or 0 for rank, one in said.items()}


def names(generators: Sequence[str]) -> str:
    """Generators in words: ``python's draws and numpy's draws``."""
    words = [f"{name}'s draws" for name in generators]
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]

"""The loader stage: a DataLoader with worker processes."""

from __future__ import annotations

from doctor.engine.fact import Answer, Fact, smoke
from doctor.facts.smoke.events import Event, Told, hear, only


class Loaded(Event, frozen=True, tag="loader"):
    """What one rank's loader workers drew, and how long it took."""

    workers: int
    digests: dict[str, int | None]
    """What the workers drew from python, numpy and torch."""
    seeds: tuple[int, ...] = ()
    """Of the workers, in their order."""
    seconds: float = 0.0
    text: str = ""
    """The error that it ended with."""
    layout: int = 0
    """Number of the layout that says which ranks read the same data."""
    dp: int = 0
    """The rank's data-parallel index in it, which its loader was seeded by."""


class SmokeLoader(Fact, frozen=True):
    """The data loaders of the host's ranks."""

    probe = smoke()

    loaded: tuple[Loaded, ...] = ()

    @classmethod
    def read(cls, answer: Answer) -> SmokeLoader:
        told = hear(answer, Told[Loaded])
        return cls(loaded=only(told.events, Loaded), unread=told.silent())

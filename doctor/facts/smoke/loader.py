"""The loader stage: a DataLoader with worker processes."""

from __future__ import annotations

from doctor.engine.fact import ProbeAnswer
from doctor.facts.smoke.events import RankEvent, StageFact, events_of_type


class LoaderResult(RankEvent, frozen=True, tag="loader"):
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


class SmokeLoader(StageFact, frozen=True):
    """The data loaders of the host's ranks."""

    stage = "loader"
    event_types = (LoaderResult,)
    every_rank = True

    loaded: tuple[LoaderResult, ...] = ()

    @classmethod
    def read(cls, answer: ProbeAnswer) -> SmokeLoader:
        report = cls.read_report(answer)
        return cls(loaded=events_of_type(report.events, LoaderResult), unread=report.unread_ranks())

"""The native stage: the layouts once more, with torch's own parallel wrappers."""

from __future__ import annotations

from doctor.engine.fact import ProbeAnswer
from doctor.facts.smoke.events import RankEvent, StageFact, events_of_type


class NativeResult(RankEvent, frozen=True, tag="native"):
    """The losses of one layout under one of torch's wrappers."""

    layout: int
    api: str
    """Such as DDP, fully_shard, parallelize_module."""
    losses: tuple[float | None, ...] = ()
    """Over all rows, the same on every rank."""
    text: str = ""
    """Why it could not run."""
    reference: tuple[float | None, ...] = ()
    """The losses of the same module in one process, without a wrapper."""


class SmokeNative(StageFact, frozen=True):
    """What DDP, FSDP2, DTensor and pipelining made of the same model and data."""

    stage = "native"
    event_types = (NativeResult,)

    native: tuple[NativeResult, ...] = ()

    @classmethod
    def read(cls, answer: ProbeAnswer) -> SmokeNative:
        report = cls.read_report(answer)
        return cls(native=events_of_type(report.events, NativeResult), unread=report.unread_ranks())

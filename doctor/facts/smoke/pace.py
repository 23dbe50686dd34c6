"""The pace stage: the same fixed work again and again, on every rank at the same time."""

from __future__ import annotations

from doctor.engine.fact import ProbeAnswer
from doctor.facts.smoke.events import RankEvent, StageFact, events_of_type


class PaceTimes(RankEvent, frozen=True, tag="pace"):
    """Seconds of each piece of work, less the time that the rank waited for a CPU."""

    input: tuple[float, ...] = ()
    compute: tuple[float, ...] = ()
    attempt: int = 0
    """From 1 on: measured again, at another time, since a rank looked slow."""


class SmokePace(StageFact, frozen=True):
    """How quickly the host's ranks do a fixed piece of work."""

    stage = "pace"
    event_types = (PaceTimes,)
    every_rank = True

    paced: tuple[PaceTimes, ...] = ()

    @classmethod
    def read(cls, answer: ProbeAnswer) -> SmokePace:
        report = cls.read_report(answer)
        return cls(paced=events_of_type(report.events, PaceTimes), unread=report.unread_ranks())

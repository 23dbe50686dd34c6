"""The pace stage: the same fixed work again and again, on every rank at the same time."""

from __future__ import annotations

from doctor.engine.fact import Fact, ProbeAnswer, smoke
from doctor.facts.smoke.events import RankEvent, RankReport, decode_report, events_of_type


class PaceTimes(RankEvent, frozen=True, tag="pace"):
    """Seconds of each piece of work, less the time that the rank waited for a CPU."""

    input: tuple[float, ...] = ()
    compute: tuple[float, ...] = ()


class SmokePace(Fact, frozen=True):
    """How quickly the host's ranks do a fixed piece of work."""

    probe = smoke()

    paced: tuple[PaceTimes, ...] = ()

    @classmethod
    def read(cls, answer: ProbeAnswer) -> SmokePace:
        report = decode_report(answer, RankReport[PaceTimes])
        return cls(paced=events_of_type(report.events, PaceTimes), unread=report.unread_ranks())

"""The pace stage: the same fixed work again and again, on every rank at the same time."""

from __future__ import annotations

from doctor.engine.fact import Answer, Fact, smoke
from doctor.facts.smoke.events import Event, Told, hear, only


class Paced(Event, frozen=True, tag="pace"):
    """Seconds of each piece of work, less the time that the rank waited for a CPU."""

    input: tuple[float, ...] = ()
    compute: tuple[float, ...] = ()


class SmokePace(Fact, frozen=True):
    """How quickly the host's ranks do a fixed piece of work."""

    probe = smoke()

    paced: tuple[Paced, ...] = ()

    @classmethod
    def read(cls, answer: Answer) -> SmokePace:
        told = hear(answer, Told[Paced])
        return cls(paced=only(told.events, Paced), unread=told.silent())

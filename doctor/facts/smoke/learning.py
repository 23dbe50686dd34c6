"""The learning stage: does the loss fall?"""

from __future__ import annotations

from doctor.engine.fact import Answer, Fact, smoke
from doctor.facts.smoke.events import Event, Told, hear, only


class Learnt(Event, frozen=True, tag="learn"):
    """The loss of one step."""

    step: int
    loss: float | None
    """None: not finite."""


class SmokeLearning(Fact, frozen=True):
    """The loss of a short training with Adam, on the ranks that compute it."""

    probe = smoke()

    steps: tuple[Learnt, ...] = ()

    @classmethod
    def read(cls, answer: Answer) -> SmokeLearning:
        told = hear(answer, Told[Learnt])
        return cls(steps=only(told.events, Learnt), unread=told.silent())

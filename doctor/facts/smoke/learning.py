"""The learning stage: whether the loss falls."""

from __future__ import annotations

from doctor.engine.fact import ProbeAnswer
from doctor.facts.smoke.events import RankEvent, StageFact, events_of_type


class LearningStep(RankEvent, frozen=True, tag="learn"):
    """The loss of one step."""

    step: int
    loss: float | None
    """None: not finite."""


class SmokeLearning(StageFact, frozen=True):
    """The loss of a short training with Adam, on the ranks that compute it."""

    stage = "learning"
    event_types = (LearningStep,)

    steps: tuple[LearningStep, ...] = ()

    @classmethod
    def read(cls, answer: ProbeAnswer) -> SmokeLearning:
        report = cls.read_report(answer)
        return cls(steps=events_of_type(report.events, LearningStep), unread=report.unread_ranks())

"""The learning stage: does the loss fall?"""

from __future__ import annotations

from doctor.engine.fact import Fact, ProbeAnswer, smoke
from doctor.facts.smoke.events import RankEvent, RankReport, decode_report, events_of_type


class LearningStep(RankEvent, frozen=True, tag="learn"):
    """The loss of one step."""

    step: int
    loss: float | None
    """None: not finite."""


class SmokeLearning(Fact, frozen=True):
    """The loss of a short training with Adam, on the ranks that compute it."""

    probe = smoke()

    steps: tuple[LearningStep, ...] = ()

    @classmethod
    def read(cls, answer: ProbeAnswer) -> SmokeLearning:
        report = decode_report(answer, RankReport[LearningStep])
        return cls(steps=events_of_type(report.events, LearningStep), unread=report.unread_ranks())

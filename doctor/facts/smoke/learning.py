"""The learning stage: whether the loss falls."""

from __future__ import annotations

from doctor.facts.smoke.events import RankEvent, StageFact
from doctor.facts.smoke.training import ShardedStep


class LearningStep(RankEvent, frozen=True, tag="learn"):
    """The loss of one step."""

    step: int
    loss: float | None
    """None: not finite."""


class LearnedParameters(RankEvent, frozen=True, tag="learned"):
    """What a rank holds after the last step. Digests are 8 bytes as an integer."""

    pp: int
    tp: int
    params: int
    gradient: int
    """Of the last step, after its reduction; 0 where each rank reduces a shard of its own."""
    steps: int
    error: float | None = None
    """From the parameters of the serial run, as a share of what they changed by; told where replicas differ."""
    code_path: str = ""
    """As in `ReferenceRun`."""
    error_steps: int = 0
    """After which the error was computed, of large worlds fewer than all; 0: all."""
    loss_error: float | None = None
    """Of the step that is furthest from the loss of the same rows in the serial run, as a share; on last stages."""
    serial: tuple[float | None, ...] = ()
    """The loss of each step of the serial run, on ranks that do it."""


class SmokeLearning(StageFact, frozen=True):
    """The loss of a short training with Adam, on the ranks that compute it, and what each rank has learned."""

    stage = "learning"
    every_rank = True
    event_types = (LearningStep, LearnedParameters, ShardedStep)

    steps: tuple[LearningStep, ...] = ()
    learned: tuple[LearnedParameters, ...] = ()
    sharded: tuple[ShardedStep, ...] = ()

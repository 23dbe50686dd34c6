"""Diagnosis of a loss curve from its known levels. Pure.

The data have a topic a row, and a word for each topic and place. Who knows nothing of them has a loss of ln 64, the
number of words; who knows the place alone, ln 7, the number of topics; who sees the other words of the row, 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

LOSS_OF_NOTHING = math.log(64)
LOSS_OF_PLACE = math.log(7)
MARGIN = 0.6
"""Below `LOSS_OF_NOTHING`. Between the best run that learns nothing (0.51) and the worst that learns (0.67)."""
MIN_STEPS = 10
"""Steps after which a program that learns is below that."""
MANY_STEPS = 40
"""Steps after which it is below `LOSS_OF_PLACE`."""
SEEDS = 1000
"""Trainings of each of seven kinds that the rule was tried on, without a mistake: ``python -m tests.smoke.curves``."""

Reason = Literal["", "nothing", "place", "rose"]


def mean_losses(rank_losses: Iterable[tuple[int, float | None]]) -> list[float | None]:
    """The mean loss of each step over all ranks that reported one; None where one of them was not finite."""
    steps: dict[int, list[float | None]] = {}
    for step, loss in rank_losses:
        steps.setdefault(step, []).append(loss)
    means: list[float | None] = []
    for _, losses in sorted(steps.items()):
        finite_losses = [loss for loss in losses if loss is not None]
        means.append(sum(finite_losses) / len(finite_losses) if len(finite_losses) == len(losses) else None)
    return means


def final_level(losses: Sequence[float]) -> float:
    """Where the curve has come to: the mean of its last three losses."""
    last = losses[-3:]
    return sum(last) / len(last)


def stall_reason(losses: Sequence[float]) -> Reason:
    """What the curve has not got below, or empty when it fell. For `MIN_STEPS` steps at least."""
    end = final_level(losses)
    if end > LOSS_OF_NOTHING - MARGIN:
        return "rose" if end > max(losses[0], LOSS_OF_NOTHING) + MARGIN else "nothing"
    return "place" if len(losses) >= MANY_STEPS and end > LOSS_OF_PLACE else ""


def false_alarm_rate(seeds: int = SEEDS) -> float:
    """The largest rate of false alarms that is still likely (95 %) when none was seen in so many trainings."""
    return 3 / seeds

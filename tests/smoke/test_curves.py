"""The loss rule on real trainings: a sample; ``python -m tests.smoke.curves`` tries all of them."""

from __future__ import annotations

import math

import pytest

from doctor.smoke.numerics.learned import MANY_STEPS, false_alarm_rate, final_level, mean_losses, stall_reason
from tests.smoke.curves import LEARNING, STUCK, curve, levels, mistakes

pytestmark = pytest.mark.torch


def test_the_rule_separates_learning_from_stuck_losses() -> None:
    events = list(levels(range(5000, 5004)))
    assert {kind for kind, _, _ in events} == {*LEARNING, *STUCK}
    assert not mistakes(events)


def test_more_steps_show_a_model_that_ignores_the_context() -> None:
    assert not stall_reason(curve("learns", 5000, MANY_STEPS))
    assert stall_reason(curve("no context", 5000, MANY_STEPS))


def test_the_levels() -> None:
    assert stall_reason([4.6] * 10) == "nothing"
    assert stall_reason([4.6 + step for step in range(10)]) == "rose"
    assert not stall_reason([4.6 - 0.2 * step for step in range(10)])
    assert not stall_reason([2.5] * (MANY_STEPS - 1))
    assert stall_reason([2.5] * MANY_STEPS) == "place"
    assert final_level([9.0, 1.0, 2.0, 3.0]) == 2.0


def test_the_loss_of_all_ranks_is_their_mean() -> None:
    assert mean_losses([(0, 4.0), (0, 5.0), (1, 3.0), (1, None)]) == [4.5, None]


def test_the_false_alarm_rate_has_an_upper_bound() -> None:
    """The rule of three: of n trials without an event, its rate is below 3 / n at 95 %."""
    assert math.isclose(false_alarm_rate(1000), 0.003)

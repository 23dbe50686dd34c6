"""What the visit says of the host's clock: a range, or nothing that can be true."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.engine.evaluate import read_fact
from doctor.engine.fact import Unreadable, Visit
from doctor.engine.record import HostRecord
from doctor.facts.visit import ClockOffset


def clock(sent: float, began: float, ended: float, received: float) -> object:
    return read_fact(HostRecord(Visit(sent=sent, began=began, ended=ended, received=received)), ClockOffset)


def test_the_difference_is_a_range() -> None:
    assert clock(100, 160.25, 160.75, 101) == ClockOffset(minimum=59.75, maximum=60.25)


@pytest.mark.parametrize(
    "times",
    [
        (100, 1e308, -1e308, 101),  # wider than anything
        (100, 150, 149, 101),  # it ended before it began
        (100, 100, 103, 101),  # longer than the visit
        (100, 100.2, 100.8, 99),  # our own clock went back
        (100, math.nan, 100, 101),
        (100, -math.inf, math.inf, 101),
    ],
)
def test_times_that_cannot_be_are_unreadable(times: tuple[float, float, float, float]) -> None:
    assert isinstance(clock(*times), Unreadable)


@given(st.floats(), st.floats())
def test_no_answer_makes_the_range_wider_than_the_visit(began: float, ended: float) -> None:
    result = clock(1000, began, ended, 1005)
    assert isinstance(result, Unreadable) or (
        isinstance(result, ClockOffset) and result.maximum - result.minimum <= 5 + 1e-3 * max(1, abs(began) * 1e-9)
    )

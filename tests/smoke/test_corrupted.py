"""A sample of `tests.smoke.corrupted`: wrong numbers in real ranks, laid at the host that they come from."""

from __future__ import annotations

from random import Random

import pytest

from tests.smoke.corrupted import carry_out
from tests.smoke.outside import Trial
from tests.smoke.outside_numbers import corruptions

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]


@pytest.mark.parametrize("number", range(1, 8))
def test_a_corruption_is_laid_at_its_host_alone(number: int) -> None:
    trial = corruptions(number + 1, 31)[number]
    judged = carry_out(trial, Random(number))
    assert judged.verdict == "right" or (judged.verdict == "one of" and is_undecidable(trial)), (trial, judged)


def is_undecidable(trial: Trial) -> bool:
    """Whether two hosts had the number in hand, and what is wrong does not come again: no byte tells which it was."""
    return bool(trial.case.fault["function"] in ("recv", "reduce") and trial.case.fault["every"] > 3)

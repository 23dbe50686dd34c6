"""A sample of `tests.smoke.corrupted`: wrong numbers in real ranks, laid at the host that they come from."""

from __future__ import annotations

from random import Random

import pytest

from tests.smoke.corrupted import carry_out
from tests.smoke.outside import Trial
from tests.smoke.outside_cases import Case
from tests.smoke.outside_numbers import FOUND, corruptions

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]


@pytest.mark.parametrize("number", range(1, 8))
def test_a_corruption_is_laid_at_its_host_alone(number: int) -> None:
    trial = corruptions(number + 1, 31)[number]
    judged = carry_out(trial, Random(number))
    assert judged.verdict == "right" or (judged.verdict == "one of" and is_undecidable(trial)), (trial, judged)


def test_a_gradient_that_is_longer_than_a_mean_is_no_sum_where_a_rank_departs_from_itself() -> None:
    """One byte of what rank 1 gives to the sum, which all ranks get."""
    fault = {"kind": "corrupt", "how": "byte", "every": 3, "place": 2367, "owner": "Model", "function": ""}
    fault |= {"method": "reduce_gradient", "of": "gradient", "when": "before"}
    judged = carry_out(Trial(Case("a gradient", FOUND, fault), 4, 2, 0, 1, 3), Random(18))
    assert (judged.verdict, judged.failed) == ("right", {"smoke-reference-differs": ["w0"]}), judged


def is_undecidable(trial: Trial) -> bool:
    """Whether two hosts had the number in hand, and what is wrong does not come again: no byte tells which it was."""
    return bool(trial.case.fault["function"] in ("recv", "reduce") and trial.case.fault["every"] > 3)

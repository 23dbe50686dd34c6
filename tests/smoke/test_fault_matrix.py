"""The detector against real processes: a seeded sample of `tests.smoke.campaign`, each kind of fault once."""

from __future__ import annotations

import pytest

from tests.smoke.faults import (
    CGROUPS,
    COMMON_STAGES,
    HARMLESS,
    KINDS,
    SHORT,
    Trial,
    carry_out,
    trials,
    usable,
    worth_showing,
)

pytestmark = pytest.mark.torch

SAMPLE = tuple(trials(len(KINDS), seed=11, worlds=(2, 4)))
SLOW = tuple(trials(len(HARMLESS), seed=12, faults=HARMLESS, worlds=(2, 4)))


@pytest.mark.sample
@pytest.mark.parametrize("trial", SAMPLE, ids=lambda trial: trial.fault)
def test_the_culprit_rank_and_its_fault_are_reported(trial: Trial) -> None:
    result = carry_out(trial, SHORT)
    assert result.right, worth_showing(result)


@pytest.mark.sample
@pytest.mark.parametrize("trial", SLOW, ids=lambda trial: trial.fault)
def test_a_slow_rank_is_no_culprit(trial: Trial) -> None:
    result = carry_out(trial, COMMON_STAGES if trial.fault == "none" else SHORT)
    assert result.right, worth_showing(result)


def test_the_sample_has_every_kind_of_fault() -> None:
    present = {fault for fault in KINDS if fault not in CGROUPS or usable(fault)}
    assert {trial.fault for trial in SAMPLE} == present

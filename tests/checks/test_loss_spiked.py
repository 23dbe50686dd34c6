from __future__ import annotations

from tests.checks.watched import falling, is_silent_about_health, losses, run_check

NAME = "loss-spiked"


def test_a_healthy_loss() -> None:
    assert is_silent_about_health(NAME)


def test_the_fault() -> None:
    (finding,) = run_check(NAME, losses(lambda step, rank: falling(step) + (8 if 150 <= step < 170 else 0))).findings
    assert str(finding).startswith("the loss jumped from")
    assert 140 <= finding.values["step"] <= 160


def test_one_bad_step_is_nothing() -> None:
    assert not run_check(NAME, losses(lambda step, rank: falling(step) + 8 * (step == 150))).findings

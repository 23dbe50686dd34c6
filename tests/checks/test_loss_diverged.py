from __future__ import annotations

from tests.checks.watched import falling, is_silent_about_health, losses, run_check

NAME = "loss-diverged"


def test_a_healthy_loss() -> None:
    assert is_silent_about_health(NAME)


def test_the_fault() -> None:
    (finding,) = run_check(
        NAME, losses(lambda step, rank: falling(step) if step < 150 else 9.5 + step % 3 / 100)
    ).findings
    assert str(finding).startswith("the loss rose from")
    assert 140 <= finding.values["step"] <= 160


def test_one_bad_step_is_nothing() -> None:
    assert not run_check(NAME, losses(lambda step, rank: falling(step) + 8 * (step == 150))).findings

from __future__ import annotations

from tests.checks.watched import falling, is_silent_about_health, losses, run_check

NAME = "loss-silent"


def test_a_healthy_loss() -> None:
    assert is_silent_about_health(NAME)


def test_a_checkpoint_is_nothing() -> None:
    assert not run_check(NAME, losses(falling, waited=500)).findings


def test_the_fault() -> None:
    (finding,) = run_check(NAME, losses(falling, waited=700)).findings
    assert str(finding) == "no loss for 700 s; before, the longest wait was 0 s"

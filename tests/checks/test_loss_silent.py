from __future__ import annotations

from tests.checks.watched import falling, is_silent_about_health, judged, losses

NAME = "loss-silent"


def test_a_healthy_loss() -> None:
    assert is_silent_about_health(NAME)


def test_a_checkpoint_is_nothing() -> None:
    assert not judged(NAME, losses(falling, waited=500)).findings


def test_the_fault() -> None:
    (finding,) = judged(NAME, losses(falling, waited=700)).findings
    assert str(finding) == "no loss for 700 s; before, the longest wait was 0 s"

from __future__ import annotations

from tests.checks.watched import falling, is_silent_about_health, losses, run_check

NAME = "loss-differs-by-rank"


def test_a_healthy_loss() -> None:
    assert is_silent_about_health(NAME)


def test_ranks_that_never_agreed_are_data_parallel() -> None:
    assert not run_check(NAME, losses(lambda step, rank: falling(step) + rank / 10, ranks=4)).findings


def test_the_fault() -> None:
    result = losses(lambda step, rank: falling(step) + (rank == 2 and step >= 200) / 2, ranks=4)
    (finding,) = run_check(NAME, result).findings
    assert finding.hosts == ("w2",) and finding.values["ranks"] == [2]
    assert "since step 200 after 200 steps on which it was equal" in str(finding)

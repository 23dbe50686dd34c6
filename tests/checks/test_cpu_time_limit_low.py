import pytest

from doctor.facts.limits import Limit, ResourceLimits
from tests.checks.limits import FREE, limits
from tests.checks.run_check import advice, messages, run_check

NAME = "cpu-time-limit-low"


def _limits(soft: int | None, hard: int | None = None) -> ResourceLimits:
    return ResourceLimits(nofile=FREE, memlock=FREE, nproc=FREE, others={"cpu time": Limit(soft, hard)})


@pytest.mark.parametrize("free", [limits(nofile=FREE), _limits(None)])
def test_no_limit_is_well(free: ResourceLimits) -> None:
    assert messages(run_check(NAME, {"a": [free]})) == []


@pytest.mark.parametrize(("soft", "word"), [(2, "error"), (59, "error"), (60, "warning"), (86400, "warning")])
def test_any_limit_is_told_and_one_that_no_training_keeps_is_an_error(soft: int, word: str) -> None:
    (finding,) = run_check(NAME, {"a": [_limits(soft)], "b": [_limits(None)]}).findings
    assert ("warning" if finding.is_warning else "error", finding.hosts) == (word, ("a",))


def test_a_limit_that_the_job_may_raise_itself() -> None:
    outcome = run_check(NAME, {"a": [_limits(7200)]})
    assert messages(outcome) == [("a", "a process may use 2 h of CPU time; expected no limit")]
    assert "`ulimit -t unlimited`" in advice(NAME, outcome)


def test_a_limit_that_only_root_can_raise() -> None:
    assert "grep -rnE 'ulimit .*-t|^[^#]*[[:space:]]cpu[[:space:]]'" in advice(
        NAME, run_check(NAME, {"a": [_limits(7200, 7200)]})
    )

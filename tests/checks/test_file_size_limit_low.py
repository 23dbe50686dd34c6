import pytest

from doctor.facts.limits import Limit, ResourceLimits
from tests.checks.limits import FREE, limits
from tests.checks.run_check import advice, messages, run_check

NAME = "file-size-limit-low"
GIB = 1 << 30


def _limits(soft: int | None, hard: int | None = None) -> ResourceLimits:
    return ResourceLimits(nofile=FREE, memlock=FREE, nproc=FREE, others={"file size": Limit(soft, hard)})


@pytest.mark.parametrize("free", [limits(nofile=FREE), _limits(None), _limits(4 * GIB, 4 * GIB)])
def test_no_limit_and_a_large_one_are_well(free: ResourceLimits) -> None:
    assert messages(run_check(NAME, {"a": [free]})) == []


@pytest.mark.parametrize(("soft", "word"), [(GIB, "warning"), (64 << 20, "warning"), (1 << 20, "error")])
def test_files_that_may_not_grow(soft: int, word: str) -> None:
    outcome = run_check(NAME, {"a": [_limits(soft)], "b": [limits(nofile=FREE)]})
    words = ["warning" if finding.is_warning else "error" for finding in outcome.findings]
    assert (words, outcome.findings[0].hosts) == ([word], ("a",))


def test_a_limit_that_the_job_may_raise_itself() -> None:
    outcome = run_check(NAME, {"a": [_limits(1 << 20)]})
    assert messages(outcome) == [("a", "a process may write files of 1 MiB; expected no limit")]
    assert "`ulimit -f unlimited`" in advice(NAME, outcome)


def test_a_limit_that_only_root_can_raise() -> None:
    assert "grep -rnE 'ulimit .*-f|^[^#]*[[:space:]]fsize[[:space:]]'" in advice(
        NAME, run_check(NAME, {"a": [_limits(1 << 20, 1 << 20)]})
    )

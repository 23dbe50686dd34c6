"""What overcommit-forbidden finds."""

from doctor.engine.quantities import GIB
from doctor.facts.memory import MemoryCommitment
from tests.checks.run_check import messages, run_check


def memory(mode: int = 2, limit: int = 64, committed: int = 10, available: int = 100) -> MemoryCommitment:
    return MemoryCommitment(mode=mode, limit=limit * GIB, committed=committed * GIB, available=available * GIB)


def test_other_modes_have_no_limit() -> None:
    """In them Committed_AS may exceed CommitLimit, and nothing is refused for it."""
    for mode in (0, 1):
        assert messages(run_check("overcommit-forbidden", {"w1": [memory(mode, committed=80)]})) == []


def test_a_strict_limit_that_leaves_what_is_available() -> None:
    assert messages(run_check("overcommit-forbidden", {"w1": [memory(limit=100)]})) == []


def test_a_strict_limit_below_the_available_memory() -> None:
    assert messages(run_check("overcommit-forbidden", {"w1": [memory()]})) == [
        ("w1", "vm.overcommit_memory is 2: programs can get 54 GiB more, although 100 GiB are available")
    ]


def test_a_limit_that_was_lowered_below_what_is_promised() -> None:
    assert messages(run_check("overcommit-forbidden", {"w1": [memory(limit=5)]})) == [
        ("w1", "vm.overcommit_memory is 2: programs can get 0 B more, although 100 GiB are available")
    ]

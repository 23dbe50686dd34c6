"""What becomes of an exit code where a scheduler gives codes a meaning of its own."""

from __future__ import annotations

import pytest

from doctor.engine.exit_code import Exit
from doctor.preflight.exit_styles import ExitCodePolicy

OWN = (*map(int, Exit),)


def test_without_options_a_code_is_what_it_is() -> None:
    assert [ExitCodePolicy().code(own) for own in OWN] == list(OWN)


def test_a_code_of_ones_own_stands_for_each_verdict_against_the_job_and_for_nothing_else() -> None:
    """A requeue mends no mistake on the command line, and no bug."""
    changed = [own for own in OWN if ExitCodePolicy(fail_exit=200).code(own) == 200]
    assert changed == [Exit.FAILED, Exit.WARNINGS, Exit.UNKNOWN]
    assert [ExitCodePolicy(fail_exit=200).code(own) for own in OWN if own not in changed] == [
        own for own in OWN if own not in changed
    ]


@pytest.mark.parametrize(
    ("own", "expected"),
    [(0, 0), (10, 2), (11, 1), (12, 3), (2, 3), (70, 3), (78, 3), (130, 3), (143, 3), (129, 3)],
)
def test_nagios(own: int, expected: int) -> None:
    assert ExitCodePolicy(style="nagios").code(own) == expected


@pytest.mark.parametrize("own", [own for own in (*OWN, 129) if own != 10])
def test_a_prolog_takes_no_node_out_of_service_for_what_is_not_its_fault(own: int) -> None:
    assert ExitCodePolicy(profile="prolog").code(own) == 0


def test_a_prolog_stops_for_a_fault_of_the_host() -> None:
    assert ExitCodePolicy(profile="prolog").code(10) == 10
    assert ExitCodePolicy(profile="prolog", fail_exit=1).code(10) == 1
    assert ExitCodePolicy(profile="prolog", style="nagios").code(10) == 2

"""What becomes of an exit code where a scheduler gives codes a meaning of its own."""

from __future__ import annotations

import pytest

from doctor.engine.exit_code import Exit
from doctor.preflight import early_end
from doctor.preflight.early_end import BUDGET
from doctor.preflight.options import ExitCodePolicy

EXIT_CODES = (*map(int, Exit),)


def test_without_options_a_code_is_what_it_is() -> None:
    assert [ExitCodePolicy().code(code) for code in EXIT_CODES] == list(EXIT_CODES)


def test_a_code_of_ones_own_stands_for_each_verdict_against_the_job_and_for_nothing_else() -> None:
    """A requeue mends no mistake on the command line, and no bug."""
    changed = [code for code in EXIT_CODES if ExitCodePolicy(fail_exit=200).code(code) == 200]
    assert changed == [Exit.FAILED, Exit.WARNINGS, Exit.UNKNOWN]
    assert [ExitCodePolicy(fail_exit=200).code(code) for code in EXIT_CODES if code not in changed] == [
        code for code in EXIT_CODES if code not in changed
    ]


@pytest.mark.parametrize(
    ("code", "expected"),
    [(0, 0), (10, 2), (11, 1), (12, 3), (2, 3), (70, 3), (78, 3), (130, 3), (143, 3), (129, 3)],
)
def test_nagios(code: int, expected: int) -> None:
    assert ExitCodePolicy(style="nagios").code(code) == expected


@pytest.mark.parametrize("code", [code for code in (*EXIT_CODES, 129) if code != 10])
def test_a_prolog_takes_no_node_out_of_service_for_what_is_not_its_fault(code: int) -> None:
    assert ExitCodePolicy(profile="prolog").code(code) == 0


def test_a_prolog_stops_for_a_fault_of_the_host() -> None:
    assert ExitCodePolicy(profile="prolog").code(10) == 10
    assert ExitCodePolicy(profile="prolog", fail_exit=1).code(10) == 1
    assert ExitCodePolicy(profile="prolog", style="nagios").code(10) == 2


@pytest.mark.parametrize("words", ["--tier quick", "--tier=quick", "-t quick", "-tquick"])
def test_an_early_end_knows_tier_and_hosts(words: str) -> None:
    argv = ["preflight", *words.split(), "n[1-2]"]
    assert early_end._budget(argv) == BUDGET["quick"]
    assert early_end._hosts_of(argv, {}) == ("n1", "n2")

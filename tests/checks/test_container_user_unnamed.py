"""What container-user-unnamed finds."""

from __future__ import annotations

from tests.checks.containers import container
from tests.checks.run_check import advice, messages, run_check, skipped

NAME = "container-user-unnamed"


def test_a_number_without_a_name() -> None:
    outcome = run_check(NAME, {"w1": [container(uid=1000, named_user=False)], "w2": [container(uid=1001)]})
    assert messages(outcome) == [("w1", "the user 1000 has no entry in /etc/passwd")]
    assert "`useradd -u 1000 -m worker`" in advice(NAME, outcome)


def test_no_container() -> None:
    outcome = run_check(NAME, {"w1": [container(engine="", named_user=False)]})
    assert skipped(outcome) == {"the job does not run in a container"}

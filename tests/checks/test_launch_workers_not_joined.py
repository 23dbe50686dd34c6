"""launch-workers-not-joined."""

from __future__ import annotations

from doctor.engine.result import Status
from tests.checks.launches import UNDECIDED, run_check
from tests.checks.tables import list_messages

NAME = "launch-workers-not-joined"


def test_msrun_waits() -> None:
    assert run_check(NAME, "", {"launcher": "msrun", "joined": True}).status is Status.PASSED
    assert list_messages(run_check(NAME, "", {"launcher": "msrun", "joined": False})) == [
        "msrun at run.sh:2 does not wait for its workers | observed no --join=True | expected --join=True"
    ]


def test_other_launchers_and_variables() -> None:
    assert run_check(NAME).status is Status.SKIPPED
    assert run_check(NAME, "", {"launcher": "msrun", "joined": UNDECIDED}).status is Status.UNKNOWN

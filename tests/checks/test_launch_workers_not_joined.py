"""launch-workers-not-joined."""

from __future__ import annotations

from doctor.engine.result import Status
from tests.checks.launches import UNDECIDED, judged
from tests.checks.tables import said

NAME = "launch-workers-not-joined"


def test_msrun_waits() -> None:
    assert judged(NAME, "", {"launcher": "msrun", "joined": True}).status is Status.PASSED
    assert said(judged(NAME, "", {"launcher": "msrun", "joined": False})) == [
        "msrun at run.sh:2 does not wait for its workers | observed no --join=True | expected --join=True"
    ]


def test_other_launchers_and_variables() -> None:
    assert judged(NAME).status is Status.SKIPPED
    assert judged(NAME, "", {"launcher": "msrun", "joined": UNDECIDED}).status is Status.UNKNOWN

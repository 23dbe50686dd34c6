"""Lines of public issue threads with a known answer: nothing else is named as the cause, and no innocent rank."""

from __future__ import annotations

from typing import Any

import pytest

from tests.diagnose import log_files
from tests.diagnose.reported import general
from tests.diagnose.test_rules import logs

THREADS: list[dict[str, Any]] = log_files.read("public.yaml")


@pytest.mark.parametrize("thread", THREADS, ids=lambda thread: thread["name"])
def test_the_answer_of_the_thread_is_found_or_nothing_is_named(thread: dict[str, Any]) -> None:
    diagnosis = logs(**{name.removesuffix(".log"): text for name, text in thread["files"].items()})
    ranks = {culprit.rank for cause in diagnosis.causes for culprit in cause.culprits if culprit.rank is not None}
    assert {general(cause.signature, thread["causes"]) for cause in diagnosis.causes} <= set(thread["causes"])
    assert ranks <= set(thread["ranks"])
    assert bool(diagnosis.causes) == bool(thread["causes"])
    assert diagnosis.failed == thread.get("failed", True)

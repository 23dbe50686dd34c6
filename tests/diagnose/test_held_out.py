"""Public logs from which no signature was made: the right cause and place are named, and no innocent for certain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from doctor.diagnose.diagnosis import Diagnosis
from tests.diagnose import log_files
from tests.diagnose.reported import general
from tests.diagnose.test_rules import logs

FOLDER = Path(__file__).with_name("logs")
THREADS: list[dict[str, Any]] = log_files.read("public_held_out.yaml")
LEAST_RIGHT = 0.85


def read(thread: dict[str, Any]) -> Diagnosis:
    return logs(**{name.removesuffix(".log"): text for name, text in thread["files"].items()})


def is_right(thread: dict[str, Any]) -> bool:
    """The cause, and the ranks where the thread shows them; where it shows none, nothing or the place that it names."""
    diagnosis = read(thread)
    ids = {general(cause.signature, thread["causes"]) for cause in diagnosis.causes}
    ranks = {culprit.rank for cause in diagnosis.causes for culprit in cause.culprits} - {None}
    hosts = {culprit.host for cause in diagnosis.causes for culprit in cause.culprits} - {""}
    return (
        ids <= set(thread["causes"])
        and bool(ids) == bool(thread["causes"])
        and ranks <= set(thread["ranks"])
        and (bool(ranks) or not thread["ranks"] or bool(hosts))
        and hosts <= set(thread.get("hosts", ()))
        and diagnosis.failed == thread.get("failed", True)
    )


@pytest.mark.parametrize("thread", THREADS, ids=lambda thread: thread["name"])
def test_nobody_innocent_is_named_for_certain(thread: dict[str, Any]) -> None:
    for cause in read(thread).causes:
        for culprit in cause.culprits:
            named = culprit.rank is None or culprit.rank in thread["ranks"]
            placed = not culprit.host or culprit.host in thread.get("hosts", ())
            assert cause.confidence != "certain" or (named and placed), cause.summary


def test_most_causes_of_logs_that_no_signature_was_made_from_are_right() -> None:
    wrong = [thread["name"] for thread in THREADS if not is_right(thread)]
    assert 1 - len(wrong) / len(THREADS) >= LEAST_RIGHT, wrong


def test_the_threads_are_those_of_no_signature_and_of_no_other_test() -> None:
    sources = {thread["source"] for thread in THREADS}
    texts = [*Path(FOLDER.parents[2], "doctor/diagnose/signatures").glob("*.toml"), FOLDER / "public.yaml"]
    others = "\n".join(path.read_text("utf-8") for path in texts)
    assert [source for source in sorted(sources) if f"{source}\n" in others or f'{source}"' in others] == []
    assert len(THREADS) >= 170

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.diagnose.decide import diagnose
from doctor.diagnose.read.matcher import Matcher
from doctor.diagnose.read.scan import scan
from doctor.diagnose.signature import load_signatures
from tests.diagnose import log_files

LOGS = Path(__file__).with_name("logs")
CASES: list[dict[str, Any]] = log_files.read("cases.yaml")
SIGNATURES = load_signatures()
MATCHER = Matcher(SIGNATURES.values())


def read(names: list[str]) -> list[Any]:
    return [
        scan(name, [(LOGS / name).read_bytes()], MATCHER, file=index, year=2026) for index, name in enumerate(names)
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_known_cause_of_a_vendors_logs_is_named_or_called_undecidable(case: dict[str, Any]) -> None:
    readings = read(case["files"])
    signatures = {event.signature for reading in readings for event in reading.events}
    assert set(case["signatures"]) <= signatures

    diagnosis = diagnose(readings, SIGNATURES)

    named = [
        {
            "signature": cause.signature,
            "ranks": sorted({culprit.rank for culprit in cause.culprits if culprit.rank is not None}),
            "hosts": sorted({culprit.host for culprit in cause.culprits if culprit.host}),
            "devices": sorted({culprit.device for culprit in cause.culprits if culprit.device is not None}),
        }
        for cause in diagnosis.causes
    ]
    assert named == case.get("causes", [])
    assert diagnosis.causes or diagnosis.undecidable


@pytest.mark.parametrize("case", [case for case in CASES if len(case["files"]) > 1], ids=lambda case: case["name"])
def test_the_order_of_files_does_not_change_the_verdict(case: dict[str, Any]) -> None:
    names = list(case["files"])
    expected = diagnose(read(names), SIGNATURES)
    for seed in range(3):
        random.Random(seed).shuffle(names)
        assert diagnose(read(names), SIGNATURES) == expected


@given(case=st.sampled_from(CASES), data=st.data())
def test_files_cut_anywhere_and_interleaved_are_diagnosed_without_an_error_in_any_order(case, data) -> None:
    texts = [(LOGS / name).read_bytes()[:20_000] for name in case["files"]]
    cut = [text[: data.draw(st.integers(0, len(text)))] for text in texts]
    if data.draw(st.booleans()):
        lines = [line for text in cut for line in text.splitlines(keepends=True)]
        cut = [b"".join(data.draw(st.permutations(lines[:40])))]
    parts = [scan(f"rank_{n}.log", [text], MATCHER, file=n, year=2026) for n, text in enumerate(cut)]
    again = [scan(f"rank_{n}.log", [text], MATCHER, file=n, year=2026) for n, text in enumerate(cut)]
    assert diagnose(data.draw(st.permutations(again)), SIGNATURES) == diagnose(parts, SIGNATURES)


def test_a_cause_is_never_noise_or_a_wrapper() -> None:
    for case in CASES:
        for cause in diagnose(read(case["files"]), SIGNATURES).causes:
            assert SIGNATURES[cause.signature].role not in ("benign", "wrapper"), case["name"]


def test_each_cause_quotes_lines_that_stand_in_the_logs() -> None:
    for case in CASES:
        diagnosis = diagnose(read(case["files"]), SIGNATURES)
        for cause in diagnosis.causes:
            assert cause.evidence
            for event in cause.evidence:
                lines = (LOGS / diagnosis.files[event.file].name).read_bytes().decode(errors="replace").split("\n")
                assert event.text[:40].split()[0] in lines[event.line - 1]

"""Each broken launch gives exactly its finding, and each sound one none."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from doctor.engine.result import Outcome
from tests.lint.cases import CASES, Case
from tests.lint.evaluate import CHECKS, outcomes_of

OF_HOSTS = "launch-restart-shares-store"
"""Whether it is a fault depends on the torch of the hosts: see its own test, and ``test_real_restarts.py``."""
OF_SHELL = "launch-limit-low"
"""It needs what a shell does before the launch line: see its own test, and ``line_mistakes.py``."""


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_case_gives_exactly_its_finding(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    outcomes = outcomes_of(case, tmp_path)
    assert {name: outcome.crashed for name, outcome in outcomes.items() if outcome.crashed} == {}
    observed_outcomes = {name: outcome for name, outcome in outcomes.items() if outcome.findings}
    assert sorted(observed_outcomes) == ([case.finds] if case.finds else []), _texts(observed_outcomes)
    assert len([finding for outcome in observed_outcomes.values() for finding in outcome.findings]) == bool(
        case.finds
    ), _texts(observed_outcomes)
    unknown = {name: outcome.unknown for name, outcome in outcomes.items() if outcome.unknown}
    assert bool(unknown) == case.undecided, unknown
    for reasons in unknown.values():
        assert reasons[""].text.startswith("not decided: ")
    for outcome in observed_outcomes.values():
        for finding in outcome.findings:
            where = str(finding.values["where"])
            assert where == case.place if case.place else where.rpartition(":")[2].isdigit() or not case.named, where
            assert "observed" in finding.values and "expected" in finding.values


def _texts(outcomes: dict[str, Outcome]) -> list[str]:
    return [f"{name}: {finding} {finding.values}" for name, outcome in outcomes.items() for finding in outcome.findings]


@pytest.mark.parametrize(
    ("program", "severities"),
    [
        ("from transformers import HfArgumentParser, Trainer", ["error"]),
        ("import own\nimport transformers\ntransformers.Seq2SeqTrainer()", ["error"]),
        ("from trl import SFTTrainer", ["error"]),
        ("from transformers import HfArgumentParser\nfrom own import OwnTrainer", ["warning"]),
        ("from transformers import HfArgumentParser", []),
    ],
)
def test_who_compares_the_micro_batches_is_the_trainer_of_transformers(
    program: str, severities: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    case = next(case for case in CASES if case.name == "transformers: micro batches differ")
    files = {**case.files, "finetune.py": program + "\n"}
    findings = outcomes_of(replace(case, files=files), tmp_path)["launch-batch-not-divisible"].findings
    assert ["warning" if finding.is_warning else "error" for finding in findings] == severities


def test_half_of_the_suite_is_sound_and_each_check_has_a_fault() -> None:
    broken = Counter(case.finds for case in CASES if case.finds)
    sound = sum(not case.finds for case in CASES)
    assert {*broken, OF_HOSTS, OF_SHELL} == {check.name for check in CHECKS}
    assert len(CASES) >= 150
    assert 0.4 < sound / len(CASES) < 0.6


def test_names_of_cases_are_unique() -> None:
    assert max(Counter(str(case) for case in CASES).values()) == 1

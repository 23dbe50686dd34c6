"""Seeded mutations of launches in every format: the sound one is silent, the broken one found in its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lint.evaluate import outcomes_of
from tests.lint.mutations import TEXTS, Mutation, mutations

SEEDS = ("1", "2")
PAIRS = [
    pytest.param(mutation, id=f"{seed}/{number} {mutation.name}")
    for seed in SEEDS
    for number, mutation in enumerate(mutations(seed))
]
PAIRS += [pytest.param(mutation, id=mutation.name) for mutation in TEXTS]


@pytest.mark.parametrize("mutation", PAIRS)
def test_a_mutation_is_found_in_its_line(mutation: Mutation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sound = {name: outcome for name, outcome in outcomes_of(mutation.sound, tmp_path).items() if outcome.findings}
    assert not sound, [str(outcome.findings) for outcome in sound.values()]
    outcomes = {name: outcome for name, outcome in outcomes_of(mutation.broken, tmp_path).items() if outcome.findings}
    assert list(outcomes) == [mutation.broken.finds], [str(outcome.findings) for outcome in outcomes.values()]
    for finding in outcomes[mutation.broken.finds].findings:
        file, _, line = str(finding.values["where"]).rpartition(":")
        text = (tmp_path / file).read_text().splitlines()[int(line) - 1]
        assert any(mark in text for mark in mutation.marks), text


def test_there_are_more_than_sixty_mutations() -> None:
    assert len(PAIRS) >= 60
    assert len({param.id for param in PAIRS}) == len(PAIRS)

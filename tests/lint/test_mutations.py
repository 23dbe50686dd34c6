"""Seeded mutations of launches in every format: the sound one is silent, the broken one found in its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lint.evaluate import outcomes_of
from tests.lint.mutations import TEXTS, Mutation, mutations

SEEDS = ("1", "2")
PAIRS = [
    pytest.param(one, id=f"{seed}/{number} {one.name}") for seed in SEEDS for number, one in enumerate(mutations(seed))
]
PAIRS += [pytest.param(one, id=one.name) for one in TEXTS]


@pytest.mark.parametrize("one", PAIRS)
def test_a_mutation_is_found_in_its_line(one: Mutation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sound = {name: outcome for name, outcome in outcomes_of(one.sound, tmp_path).items() if outcome.findings}
    assert not sound, [str(outcome.findings) for outcome in sound.values()]
    found = {name: outcome for name, outcome in outcomes_of(one.broken, tmp_path).items() if outcome.findings}
    assert list(found) == [one.broken.finds], [str(outcome.findings) for outcome in found.values()]
    for finding in found[one.broken.finds].findings:
        file, _, line = str(finding.values["where"]).rpartition(":")
        text = (tmp_path / file).read_text().splitlines()[int(line) - 1]
        assert any(mark in text for mark in one.marks), text


def test_there_are_more_than_sixty_mutations() -> None:
    assert len(PAIRS) >= 60
    assert len({param.id for param in PAIRS}) == len(PAIRS)

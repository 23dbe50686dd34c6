"""Wrong programs are told, each by the check that it is meant for and by no other.

Of the right one none tells anything: tests/smoke/test_worker_training.py.
"""

from __future__ import annotations

import random

import pytest

from doctor.smoke.plan import default_layouts
from tests.smoke.mutants import MUTANTS, OURS, Mutant, applies, fits, problems, run

pytestmark = pytest.mark.torch

SAMPLE = [mutant for mutant in MUTANTS if mutant.sample]


@pytest.mark.sample
@pytest.mark.parametrize("mutant", SAMPLE, ids=lambda mutant: mutant.name)
def test_a_wrong_program_is_told_by_its_check_alone(mutant: Mutant) -> None:
    """On the fewest ranks that it is wrong on, with a guilty rank that the name decides."""
    world = next(world for world in (2, 4) if fits(mutant, world))
    guilty = random.Random(mutant.name).randrange(world)
    assert not list(problems(mutant, run(mutant, world, guilty), guilty)), mutant.why


@pytest.mark.sample
@pytest.mark.parametrize("name", ["mask: numpy alone", "bit flip in a reduced gradient", "loader worker"])
def test_of_four_ranks_the_guilty_one_is_named_without_a_tie(name: str) -> None:
    [mutant] = [entry for entry in MUTANTS if entry.name == name]
    assert not list(problems(mutant, run(mutant, 4, 2), 2)), mutant.why


def test_every_check_has_a_wrong_program_and_every_wrong_program_a_reason() -> None:
    assert {mutant.check for mutant in MUTANTS} == OURS
    assert {mutant.check for mutant in SAMPLE} == OURS
    assert all(mutant.why and mutant.text for mutant in MUTANTS)
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_every_wrong_program_is_wrong_somewhere() -> None:
    for mutant in MUTANTS:
        assert any(applies(mutant, layout) for world in (2, 4) for layout in default_layouts(world))

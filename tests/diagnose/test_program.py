"""Real programs over gloo that fail, or overcome trouble, and the diagnosis of their logs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.diagnose.trial import FAULTS, HEALTHY, Place, Trial

SAMPLE = (FAULTS.index("kill"), pytest.param(FAULTS.index("exit"), marks=pytest.mark.full))
GOOD = ("right", "undecidable", "no rank", "not struck", "one of two")
"""Results in which no innocent rank is named, or two of which the other could have left the same logs."""


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    from tests.diagnose.campaign import places

    with places(("plain", "torchrun", "torchrun-folder", "spawn")) as results:
        yield results


@pytest.mark.parametrize("seed", SAMPLE, ids=lambda seed: FAULTS[seed])
def test_the_rank_that_failed_is_named_from_the_logs_of_a_real_job(tmp_path: Path, seed: int) -> None:
    trial = Trial(seed, tmp_path, ("plain", "torchrun", "torchrun-folder"), sizes=(2,))
    assert trial.run() in GOOD, trial.folder.name


def test_what_a_real_run_overcame_is_no_cause(tmp_path: Path) -> None:
    trial = Trial(HEALTHY.index("caught"), tmp_path, ("plain",), HEALTHY, sizes=(2,))
    assert trial.run() in ("right", "slow"), trial.folder.name


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(2 * len(FAULTS)), ids=lambda seed: f"{seed}-{FAULTS[seed % len(FAULTS)]}")
def test_no_innocent_rank_is_named_for_any_fault(tmp_path: Path, seed: int, place: Place) -> None:
    trial = Trial(seed, tmp_path, ("plain", "torchrun", "torchrun-folder", "spawn", "mpirun"))
    result = trial.run(place)
    assert result in (*GOOD, "cut") or trial.fault in ("order", "skip"), f"{trial.folder.name}: {result}"
    assert result != "accused"


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(3 * len(HEALTHY)), ids=lambda seed: f"{seed}-{HEALTHY[seed % len(HEALTHY)]}")
def test_no_cause_is_found_in_a_run_that_ended_well(tmp_path: Path, seed: int, place: Place) -> None:
    trial = Trial(seed, tmp_path, ("plain", "torchrun", "torchrun-folder", "spawn", "mpirun"), HEALTHY)
    assert trial.run(place) in ("right", "slow"), trial.folder.name

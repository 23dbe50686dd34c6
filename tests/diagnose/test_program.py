"""Real programs over gloo that fail, and the diagnosis of their logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.diagnose.trial import FAULTS, Trial

SAMPLE = (FAULTS.index("kill"), FAULTS.index("exit"))


@pytest.mark.parametrize("seed", SAMPLE, ids=lambda seed: FAULTS[seed])
def test_the_rank_that_failed_is_named_from_the_logs_of_a_real_job(tmp_path: Path, seed: int) -> None:
    trial = Trial(seed, tmp_path)
    assert trial.run() in ("right", "undecidable"), trial.folder.name


@pytest.mark.full
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", range(2 * len(FAULTS)), ids=lambda seed: f"{seed}-{FAULTS[seed % len(FAULTS)]}")
def test_the_rank_that_failed_is_named_for_every_fault(tmp_path: Path, seed: int) -> None:
    trial = Trial(seed, tmp_path)
    assert trial.run() in ("right", "undecidable"), trial.folder.name

"""Logs of runs that went well: nothing is a cause, and the exit code is 0 where a line shows a good end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.diagnose import log_files
from tests.diagnose.noisy_logs import noisy_run
from tests.diagnose.reported import exit_code
from tests.diagnose.test_rules import logs

RUNS: list[dict[str, Any]] = log_files.read("healthy.yaml")


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run["name"])
def test_a_run_that_went_well_has_no_cause(run: dict[str, Any]) -> None:
    diagnosis = logs(**{name.removesuffix(".log"): text for name, text in run["files"].items()})
    assert [cause.summary for cause in diagnosis.causes] == [] and not diagnosis.failed
    assert exit_code(diagnosis) in ((0,) if run.get("end", True) else (0, 12))


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_in_a_noisy_run_that_goes_on_nothing_is_a_certain_cause_and_no_rank_is_accused(first: int) -> None:
    for seed in range(first, first + 50):
        for cause in logs(**noisy_run(seed)).causes:
            assert cause.confidence == "possible", f"{seed}: {cause.summary}"
            assert cause.rule != "silence", f"{seed}: {cause.summary}"


@pytest.mark.parametrize(("label", "ends_well"), [(0, True), (1, False)])
def test_a_task_of_an_earlier_step_of_the_job_that_failed(label: int, ends_well: bool) -> None:
    """A public result of MLPerf: task 0 of a step before the training ended with 1, and task 0 of the training well."""
    report = "srun: error: mlperf-h100-0208: task 0: Exited with exit code 1\n"
    end = (
        f'{label}: :::MLLOG {{"event_type": "INTERVAL_END", "key": "run_stop", "metadata": {{"status": "success"}}}}\n'
    )
    assert (not logs(slurm=f"{report}0: step 1 loss 2.0\n{end}").failed) == ends_well

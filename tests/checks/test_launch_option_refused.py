"""launch-option-refused."""

from __future__ import annotations

from doctor.engine.result import Status
from doctor.job import LaunchConfig
from tests.checks.launch_lines import config, run_check


def test_an_option_that_the_launcher_refuses() -> None:
    outcome = run_check("launch-option-refused", config("torchrun --nnodes four --master-port 0x t.py"))
    assert {finding.values["option"] for finding in outcome.findings} == {"--nnodes", "--master-port"}
    assert run_check("launch-option-refused", config("torchrun t.py")).status is Status.PASSED


def test_without_a_launch_line_there_is_nothing_to_judge() -> None:
    assert run_check("launch-option-refused", LaunchConfig()).status is Status.SKIPPED

"""launch-option-refused."""

from __future__ import annotations

import pytest

from doctor.engine.result import Status
from doctor.job import LaunchConfig
from tests.checks.launch_lines import config, run_check


def test_an_option_that_the_launcher_refuses() -> None:
    outcome = run_check("launch-option-refused", config("torchrun --nnodes four --master-port 0x t.py"))
    assert {finding.values["option"] for finding in outcome.findings} == {"--nnodes", "--master-port"}
    assert run_check("launch-option-refused", config("torchrun t.py")).status is Status.PASSED


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("torchrun --nnodes 2 --node_rank 2 t.py", "--node-rank"),
        ("torchrun --nnodes 1:3 --node_rank 2 t.py", ""),
        ("torchrun --nnodes 2 --node_rank 1 t.py", ""),
        ("torchrun --node_rank 1 t.py", "--node-rank"),
        ("accelerate launch --num_machines 2 --machine_rank 2 t.py", "--machine-rank"),
    ],
)
def test_the_number_of_a_host_that_the_line_does_not_start(line: str, option: str) -> None:
    outcome = run_check("launch-option-refused", config(line))
    assert [finding.values["option"] for finding in outcome.findings] == ([option] if option else [])


def test_without_a_launch_line_there_is_nothing_to_judge() -> None:
    assert run_check("launch-option-refused", LaunchConfig()).status is Status.SKIPPED

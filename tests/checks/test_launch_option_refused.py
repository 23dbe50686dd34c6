"""launch-option-refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor.engine.record import LaunchOptions
from doctor.engine.result import Status
from doctor.job import LaunchConfig
from doctor.session.lint_files import launches_of
from tests.checks.launch_lines import config, run_check
from tests.checks.run_check import advice


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
        ("accelerate launch --num_machines 2 --machine_rank 2 --main_process_ip a t.py", "--machine-rank"),
    ],
)
def test_the_number_of_a_host_that_the_line_does_not_start(line: str, option: str) -> None:
    outcome = run_check("launch-option-refused", config(line))
    assert [finding.values["option"] for finding in outcome.findings] == ([option] if option else [])


def test_without_a_launch_line_there_is_nothing_to_judge() -> None:
    assert run_check("launch-option-refused", LaunchConfig()).status is Status.SKIPPED


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("--node_rank=$UNSET", Status.UNKNOWN),
        ("--node_rank $UNSET", Status.UNKNOWN),
        ('--node_rank "$UNSET"', Status.UNKNOWN),
        ("--node_rank=${UNSET:?give the number}", Status.UNKNOWN),
        ("--node_rank $NODE_RANK", Status.PASSED),  # each host has its own
        ("--node_rank $MLP_ROLE_INDEX", Status.PASSED),
        ("--node_rank $machine_rank", Status.PASSED),
        ("--nproc_per_node $MLP_WORKER_GPU --master_port $MLP_WORKER_0_PORT", Status.PASSED),  # not in its sample
        ("--nproc_per_node $SLURM_GPUS_ON_NODE", Status.PASSED),
        ("--nproc_per_node $UNSET", Status.UNKNOWN),
        ("--nproc_per_node $((UNSET * 2))", Status.UNKNOWN),
        ("--node_rank=${UNSET:-1}", Status.PASSED),
        ("--node_rank=${UNSET:-7}", Status.FAILED),
        ("--node_rank=$SLURM_NODEID", Status.PASSED),  # of srun, for each host
        ("--rdzv_id=$(uuidgen)", Status.PASSED),
        ("$UNSET", Status.UNKNOWN),
        ("--node_rank=$EMPTY", Status.FAILED),
        ('--node_rank "$EMPTY"', Status.FAILED),
        ("--node_rank $EMPTY", Status.FAILED),  # the word vanishes, and the next is the value
        ('--nnodes "$EMPTY"', Status.FAILED),
    ],
)
def test_a_variable_in_the_line_of_a_job_script(tmp_path: Path, words: str, status: Status) -> None:
    """As bash and torchrun do it: an empty word is ``invalid int value: ''`` (torchrun of PyTorch 2.13)."""
    script = tmp_path / "run.sh"
    script.write_text(f"EMPTY=\ntorchrun --nnodes 2 {words} --master_addr n1 train.py\n")
    (launch,) = launches_of([str(script)], [], LaunchOptions(), {})
    assert run_check("launch-option-refused", LaunchConfig.from_options(launch)).status is status


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("srun -N 2 torchrun --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint n1:1 t.py", "add `--nnodes 2`"),
        ("torchrun --nproc-per-node 8 python t.py", "as in `torchrun train.py`"),
        ("accelerate launch --num_machines 2 --num_processes 4 t.py", "add `--main_process_ip <address>`"),
    ],
)
def test_the_remedy_says_what_to_write(line: str, remedy: str) -> None:
    todo = advice("launch-option-refused", run_check("launch-option-refused", config(line)))
    assert remedy in todo
    assert todo.count("add `") <= 1

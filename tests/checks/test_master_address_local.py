"""master-address-local."""

from __future__ import annotations

import msgspec
import pytest

from doctor.engine.result import Status
from tests.checks.launch_lines import config, run_check

NAME = "master-address-local"


@pytest.mark.parametrize(
    "line",
    [
        "torchrun --nnodes 2 t.py",
        "torchrun --nnodes 2 --node-rank 1 --master-addr localhost t.py",
        "torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:29400 t.py",
        "msrun --worker_num 16 --local_worker_num 8 t.py",
        "accelerate launch --num_machines 2 --main_process_ip ::1 t.py",
        "srun -N2 torchrun --nnodes 2 --master_addr 127.0.1.1 t.py",
    ],
)
def test_several_hosts_that_meet_at_themselves(line: str) -> None:
    (finding,) = run_check(NAME, config(line)).findings
    assert finding.values["nodes"] == 2
    first_of_allocation = "$(scontrol show hostnames" if line.startswith("srun") else "<address>"
    assert first_of_allocation in finding.values["option"]


@pytest.mark.parametrize(
    "line",
    [
        "torchrun --nnodes 2 --master-addr n1 t.py",
        "torchrun --nnodes 1 --master-addr localhost t.py",
        "torchrun --standalone t.py",
        "torchrun --nnodes 2 --node-rank 0 --master-addr localhost t.py",
        "torchrun --nnodes 2 --rdzv-backend etcd --rdzv-endpoint localhost:2379 t.py",
        "srun -N2 torchrun --nnodes 1 t.py",
        "mpirun -np 8 python t.py",
        "python t.py",
    ],
)
def test_an_address_of_a_host_one_host_and_the_line_of_rank_0_are_no_findings(line: str) -> None:
    outcome = run_check(NAME, config(line))
    assert outcome.status in (Status.PASSED, Status.SKIPPED)


def test_the_variable_counts_where_the_program_reads_it() -> None:
    assert run_check(NAME, config("srun -N2 python t.py", {"MASTER_ADDR": "localhost"})).findings
    assert not run_check(NAME, config("srun -N2 python t.py", {"MASTER_ADDR": "n1"})).findings


def test_an_address_that_only_a_shell_computes_is_not_judged() -> None:
    outcome = run_check(NAME, config("torchrun --nnodes 2 --master-addr n1 t.py"))
    assert outcome.status is Status.PASSED
    launch = msgspec.structs.replace(
        config("torchrun --nnodes 2 t.py"), master_addr="", unresolved={"MASTER_ADDR": "$M"}
    )
    assert run_check(NAME, launch).status is Status.SKIPPED

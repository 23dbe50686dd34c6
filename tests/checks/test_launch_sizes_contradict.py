"""What launch-sizes-contradict finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor.engine.record import LaunchOptions
from doctor.engine.result import Severity
from doctor.environment.job_environment import launches_of_job_script
from doctor.job import LaunchConfig
from tests.checks.launch_lines import config
from tests.checks.run_check import job, messages, run_check, skipped
from tests.checks.tables import a1
from tests.checks.tables import run_check as run_on_table

NAME = "launch-sizes-contradict"


def test_two_numbers_of_ranks() -> None:
    outcome = run_check(NAME, {}, job(WORLD_SIZE="15", OMPI_COMM_WORLD_SIZE="16"))
    expected = "expected WORLD_SIZE to be a multiple of OMPI_COMM_WORLD_SIZE"
    assert messages(outcome) == [("", f"WORLD_SIZE is 15, and OMPI_COMM_WORLD_SIZE is 16; {expected}")]
    assert outcome.found_severity is Severity.ERROR


def test_two_numbers_of_hosts() -> None:
    assert messages(run_check(NAME, {}, job(NNODES="4", NUM_NODES="2"))) == [
        ("", "NNODES is 4, and NUM_NODES is 2; expected NUM_NODES and NNODES to be equal")
    ]


def test_the_size_of_an_allocation_is_a_hint() -> None:
    outcome = run_check(NAME, {}, job(RANK_SIZE="15", SLURM_NTASKS="16"))
    assert outcome.found_severity is Severity.WARNING and len(outcome.findings) == 1


def test_the_hosts_of_a_rank_table() -> None:
    assert run_on_table(NAME, a1(2, 8), NNODES="2").complete
    outcome = run_on_table(NAME, a1(2, 8), NNODES="3")
    assert [str(finding).partition(";")[0] for finding in outcome.findings] == ["the rank table is 2, and NNODES is 3"]


def test_one_source_alone() -> None:
    assert skipped(run_check(NAME, {}, job(WORLD_SIZE="15"))) == {"no two sources state the size of the job"}


SBATCH = "#!/bin/bash\n#SBATCH -N 4\n#SBATCH --ntasks-per-node=1\nmodule load cuda\nsource env.sh\n"
TORCHRUN = "torchrun --nnodes 4 --rdzv_backend c10d --rdzv_endpoint n1:29400 t.py"


def of_script(text: str, tmp_path: Path) -> list[str]:
    path = tmp_path / "job.sh"
    path.write_text(text + "\n")
    launch = LaunchConfig.from_options(launches_of_job_script(str(path), {})[0].complete(LaunchOptions()))
    return [text for _, text in messages(run_check(NAME, {}, launch))]


@pytest.mark.parametrize("line", [TORCHRUN, f"docker run --rm image {TORCHRUN}", f"bash -c '{TORCHRUN}'"])
def test_a_script_of_several_hosts_that_starts_one_launcher(line: str, tmp_path: Path) -> None:
    found = of_script(SBATCH + line, tmp_path)
    assert found == ["the job script starts torchrun on its own host alone, and torchrun is for 4 hosts"]
    assert of_script(SBATCH.replace("SBATCH", "BATCH") + line, tmp_path) == []


@pytest.mark.parametrize(
    "text",
    [
        f"srun {TORCHRUN}",
        f"ssh n2 {TORCHRUN} &\nssh n3 {TORCHRUN} &\nssh n4 {TORCHRUN} &\n{TORCHRUN}",
        f"pbsdsh -u ./worker &\n{TORCHRUN}",
        f'eval "$START_OTHERS"\n{TORCHRUN}',
        f"$LAUNCHER {TORCHRUN}",
        f"bash start_others.sh\n{TORCHRUN}",
        f"if [ $SLURM_STEP_ID ]; then {TORCHRUN}; else run_all; fi",
        f"run() {{ {TORCHRUN}; }}\nexport -f run",
        TORCHRUN.replace("--nnodes 4", "--nnodes 1:4"),
        "deepspeed --num_nodes 4 t.py",
    ],
)
def test_what_may_start_the_others_is_no_finding(text: str, tmp_path: Path) -> None:
    assert of_script(SBATCH + text, tmp_path) == []


def test_an_outer_launcher_that_starts_another_number_of_torchruns() -> None:
    outcome = run_check(NAME, {}, config("srun -N 2 torchrun --nnodes 4 t.py"))
    assert messages(outcome) == [("", "srun starts torchrun 2 times, and torchrun is for 4 hosts")]
    assert run_check(NAME, {}, config("srun -N 2 torchrun --nnodes 2 t.py")).complete
    assert not run_check(NAME, {}, config("srun -N 1 -w n1 torchrun --nnodes 2 t.py")).findings


def test_a_launcher_of_all_hosts_that_is_started_on_each() -> None:
    outcome = run_check(NAME, {}, config("srun -N 4 -n 4 deepspeed --num_nodes 4 --hostfile hosts t.py"))
    assert messages(outcome) == [
        ("", "srun starts deepspeed 4 times, and each deepspeed starts the ranks of all hosts")
    ]
    assert outcome.found_severity is Severity.ERROR
    outcome = run_check(NAME, {}, config("mpirun -np 4 mpirun -np 8 t.py"))
    assert messages(outcome) == [("", "mpirun starts mpirun 4 times, and each mpirun starts the ranks of all hosts")]


@pytest.mark.parametrize(
    "line",
    [
        "srun -N 1 -n 1 deepspeed --num_nodes 4 --hostfile hosts t.py",
        "srun -N 4 deepspeed --no_ssh --num_nodes 4 --hostfile hosts --node_rank $R t.py",
        "srun -N 4 deepspeed --include localhost:0 t.py",
        "srun -N 4 deepspeed t.py",
        "srun -N 4 mpirun -np 8 -H localhost:8 t.py",
        "srun -N 4 mpirun -np 1 t.py",
        "srun -N 4 mpiexec.hydra -launcher fork -n 8 t.py",
        "srun -N 4 mpirun --mca plm isolated -np 8 t.py",
        "srun -N $NODES mpirun -np 8 t.py",
        "pdsh -w n[1-4] 'mpirun -np 8 t.py'",
        "mpirun -np 4 horovodrun -np 8 -H localhost:8 t.py",
    ],
)
def test_a_launcher_of_one_host_may_be_started_on_each(line: str) -> None:
    assert not run_check(NAME, {}, config(line)).findings

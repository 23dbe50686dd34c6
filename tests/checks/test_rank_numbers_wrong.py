"""rank-numbers-wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from doctor.engine.record import LaunchOptions
from doctor.engine.result import Outcome, Status
from doctor.environment.job_environment import launches_of_job_script
from doctor.job import LaunchConfig
from doctor.session.script_launches import launches_of_script
from tests.checks.launch_lines import run_check


def ranks(**by_host: dict[str, str]) -> Outcome:
    return run_check("rank-numbers-wrong", LaunchConfig.from_environment({}, by_host=by_host))


RANKS: list[tuple[list[dict[str, str]], list[tuple[str, Any, tuple[str, ...]]]]] = [
    ([{"RANK": "0", "WORLD_SIZE": "2"}, {"RANK": "1", "WORLD_SIZE": "2"}], []),
    ([{"RANK": "1"}, {"RANK": "1"}], [("RANK", 1, ("n0", "n1"))]),
    ([{"NODE_RANK": "0"}, {"NODE_RANK": "0"}, {"NODE_RANK": "2"}], [("NODE_RANK", 0, ("n0", "n1"))]),
    ([{"RANK": "0", "WORLD_SIZE": "2"}, {"RANK": "2", "WORLD_SIZE": "2"}], [("RANK", 2, ("n1",))]),
    (
        [{"RANK": str(host), "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "4"} for host in range(2)],
        [("WORLD_SIZE", 16, ())],
    ),
    ([{"RANK": "x"}, {"RANK": "1"}], []),
    ([{"RANK": "x", "WORLD_SIZE": "2"}], [("RANK", "x", ("n0",))]),
    ([{"RANK": "2", "WORLD_SIZE": "2"}], [("RANK", 2, ("n0",))]),
    ([{"RANK": "1", "WORLD_SIZE": "2"}], []),
]


@pytest.mark.parametrize(("environs", "findings"), RANKS)
def test_numbers_of_ranks(environs: list[dict[str, str]], findings: list[tuple[str, Any, tuple[str, ...]]]) -> None:
    outcome = ranks(**{f"n{number}": environ for number, environ in enumerate(environs)})
    assert [
        (finding.values["variable"], finding.values["observed"], finding.hosts) for finding in outcome.findings
    ] == findings


def test_the_remedy_is_that_of_the_fault() -> None:
    def remedy(*environs: dict[str, str]) -> str:
        return str(ranks(**{f"n{n}": environ for n, environ in enumerate(environs)}).findings[0].values["remedy"])

    assert "`export NODE_RANK=$SLURM_NODEID`" in remedy({"NODE_RANK": "0"}, {"NODE_RANK": "0"})
    assert "`export WORLD_SIZE=8`" in remedy(*({"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "4"} for _ in range(2)))


SBATCH = "#!/bin/bash\n#SBATCH -N 2\n#SBATCH --ntasks-per-node=1\n"
OWN_NUMBER = {
    "a shell on each host counts": SBATCH + "srun bash -c 'torchrun --nnodes 2 --node_rank $SLURM_NODEID -- t.py'",
    "an inner shell of a shell": SBATCH
    + "srun bash -c 'bash -c \"torchrun --nnodes 2 --node_rank $SLURM_PROCID t.py\"'",
    "a variable of torchrun that is computed": SBATCH + "export PET_NODE_RANK=$(cat /n)\nsrun torchrun --nnodes 2 t.py",
    "c10d counts": SBATCH + "srun torchrun --nnodes 2 --node_rank 0 --rdzv_backend c10d --rdzv_endpoint a:1 t.py",
    "a backend that is not known": SBATCH + "srun torchrun --nnodes 2 --rdzv_backend $(b) --rdzv_endpoint a:1 t.py",
    "options that are not known": SBATCH + "srun torchrun --nnodes 2 $(options) t.py",
    "one host": SBATCH.replace("2", "1") + "srun torchrun --nnodes 1 --node_rank 0 t.py",
    "a counting loop": "for ((i = 0; i < 2; i++)); do srun -N1 -n1 -r $i torchrun --nnodes 2 --node_rank $i t.py; done",
    "one step for each host": SBATCH + "srun -N1 -n1 -w a torchrun --nnodes 2 --node_rank 0 t.py",
    "a loop over the other hosts": "for h in $WORKERS; do ssh $h torchrun --nnodes 2 --node_rank 1 t.py & done",
    "a branch of a loop": "for h in a b; do if [ $h = a ]; then ssh $h torchrun --nnodes 2 --node_rank 0 t; fi; done",
    "another host of a loop": "for p in 1 2; do ssh $HEAD torchrun --nnodes 2 --node_rank 0 --master_port $p t; done",
    "a loop that counts": "for h in a b; do ssh $h torchrun --nnodes 2 --node_rank $n t.py & n=$((n + 1)); done",
    "this host's own line": "torchrun --nnodes 2 --node_rank 0 --master_addr a t.py",
    "msrun counts": SBATCH + "srun msrun --worker_num 16 --local_worker_num 8 --master_addr a t.py",
    "pdsh counts": "pdsh -w n[1-4] 'torchrun --nnodes 4 --node_rank %n --master_addr n1 t.py'",
    "Open MPI counts": "mpirun -np 2 bash -c 'torchrun --nnodes 2 --node_rank $OMPI_COMM_WORLD_RANK t.py'",
    "each task exports": SBATCH + "srun bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID python t.py'",
    "one task": SBATCH.replace("2", "1") + "export RANK=0 LOCAL_RANK=0\nsrun python t.py",
    "one rank on each host": SBATCH + "export LOCAL_RANK=$SLURM_LOCALID\nsrun python t.py",
    "torchrun numbers the ranks": SBATCH + "export RANK=0\nsrun torchrun --nnodes 2 --node_rank $(n) t.py",
}
IN_A_JOB = {"SLURM_JOB_ID": "7", "SLURM_NODEID": "0", "SLURM_PROCID": "0", "OMPI_COMM_WORLD_RANK": "0"}


@pytest.mark.parametrize("environ", [{}, IN_A_JOB], ids=["elsewhere", "in the job"])
@pytest.mark.parametrize("text", OWN_NUMBER.values(), ids=list(OWN_NUMBER))
def test_what_gives_each_host_its_own_number_is_no_finding(text: str, environ: dict[str, str], tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text(text + "\n")
    launch = launches_of_job_script(str(script), environ)[0].complete(LaunchOptions())
    assert not run_check("rank-numbers-wrong", LaunchConfig.from_options(launch)).findings


def outcome_of(text: str, folder: Path, environ: dict[str, str] | None = None) -> Outcome:
    script = folder / "job.sh"
    script.write_text(text + "\n")
    return run_check(
        "rank-numbers-wrong",
        LaunchConfig.from_options(launches_of_job_script(str(script), environ or {})[0].complete(LaunchOptions())),
    )


@pytest.mark.parametrize(
    ("number", "findings"),
    [
        ("$((SLURM_PROCID / 8))", 1),  # two findings of one fault, one by each of two readers
        ("$((SLURM_PROCID >> 3))", 1),
        ("$((SLURM_LOCALID))", 1),
        ("$((SLURM_PROCID / SLURM_NTASKS))", 1),
        ("$((SLURM_NODEID * 2))", 1),
        ("$((1 - SLURM_NODEID))", 0),
        ("$((SLURM_PROCID % SLURM_NNODES))", 0),
        ("$((SLURM_PROCID << 99))", 0),
        ("$((RANK / 8))", 0),
    ],
)
def test_a_number_that_each_task_computes(number: str, findings: int, tmp_path: Path) -> None:
    text = f"{SBATCH}srun bash -c 'torchrun --nnodes 2 --node_rank {number} --master_addr a t.py'"
    assert len(outcome_of(text, tmp_path).findings) == findings


def test_a_loop_of_ssh_gives_each_host_the_same_number(tmp_path: Path) -> None:
    for command in ("ssh $h torchrun", "ssh root@$h cd /job '&&' torchrun", 'ssh -p 22 "$h" "cd /job; torchrun"'):
        text = f"for h in n1 n2 n3; do {command} --nnodes 3 --node_rank 0 --master_addr n1 t.py & done"
        text = text.replace('torchrun"', "torchrun").replace("t.py &", 't.py" &') if command.endswith('"') else text
        [finding] = outcome_of(text, tmp_path).findings
        assert str(finding) == "ssh starts torchrun 3 times, and each of them gets node rank 0", text
        assert "n=0; for host in <hosts>; do ssh $host" in finding.values["remedy"]


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ("--node_rank 0", Status.UNKNOWN),
        ("--node_rank 1", Status.UNKNOWN),
        ("--node_rank ${NODE_RANK:-0}", Status.SKIPPED),  # each host has its own
        ("--node_rank 0 --rdzv_backend c10d --rdzv_endpoint a:1", Status.SKIPPED),
        ("--rdzv_backend c10d --rdzv_endpoint a:1", Status.SKIPPED),
    ],
)
def test_the_scripts_of_other_hosts_are_not_known(options: str, status: Status, tmp_path: Path) -> None:
    assert outcome_of(f"torchrun --nnodes 2 --master_addr a {options} t.py", tmp_path).status is status
    assert outcome_of(f"torchrun --nnodes 1 --master_addr a {options.replace('1', '0')} t.py", tmp_path).status in (
        Status.SKIPPED,
    )


RANK_TO_BE = {"RANK": "0", "WORLD_SIZE": "2"}


@pytest.mark.parametrize(
    ("environ", "variables"),
    [
        ({"LOCAL_RANK": "x"}, [("LOCAL_RANK", False)]),
        ({"LOCAL_RANK": "-1"}, [("LOCAL_RANK", False)]),
        ({"LOCAL_RANK": "0"}, []),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, [("RANK", True)]),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, []),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "16"}, []),  # mpirun started another launcher
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, [("RANK", True)]),
    ],
)
def test_the_other_numbers_of_the_rank_to_be(environ: dict[str, str], variables: list[tuple[str, bool]]) -> None:
    findings = ranks(n0={**RANK_TO_BE, **environ}).findings
    assert [(finding.values["variable"], finding.is_warning) for finding in findings] == variables


def test_a_script_that_every_task_runs_counts_in_each_of_them(tmp_path: Path) -> None:
    text = "export RANK=$SLURM_PROCID\ntorchrun --nnodes 2 --node_rank $SLURM_NODEID --master_addr a t.py\n"
    outer = SBATCH + "srun bash run.sh\n"
    [launch] = launches_of_script(outer, "job.sh", IN_A_JOB, {"run.sh": text}.get)
    assert launch.line.unresolved == {"torchrun node-rank": "$SLURM_NODEID", "RANK=": "$SLURM_PROCID"}


def test_without_each_hosts_environment_ranks_are_not_judged() -> None:
    assert run_check("rank-numbers-wrong", LaunchConfig.from_environment({})).status is Status.SKIPPED

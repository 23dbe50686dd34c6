"""How long the scheduler lets the job still run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from doctor.environment.time_left import seconds_left, step_limit
from doctor.job.launch_line import read_launch_line

NOW = 1_800_000_000.0


def squeue(answer: str) -> Callable[[Sequence[str]], str]:
    def run(argv: Sequence[str]) -> str:
        assert list(argv) == ["squeue", "--noheader", "--jobs", "12", "--format", "%L"]
        if not answer:
            raise OSError("squeue is not installed")
        return answer

    return run


@pytest.mark.parametrize(
    ("environ", "answer", "left"),
    [
        ({"SLURM_JOB_ID": "12", "SLURM_JOB_END_TIME": "1800000600"}, "", 600.0),
        ({"SLURM_JOB_END_TIME": "1799999999"}, "", 0.0),
        ({"SLURM_JOB_END_TIME": "4294967295"}, "", None),  # a job without a limit
        ({"SLURM_JOB_END_TIME": "soon"}, "", None),
        ({"COBALT_JOBID": "7", "COBALT_ENDTIME": "1800000060"}, "", 60.0),
        ({"SLURM_JOB_ID": "12"}, "1-02:03:04\n", 93784.0),
        ({"SLURM_JOB_ID": "12"}, "   4:59\n", 299.0),
        ({"SLURM_JOB_ID": "12"}, "0:00\n", 0.0),
        ({"SLURM_JOB_ID": "12", "SLURM_PROCID": "0"}, "9:00\n", 540.0),
        ({"SLURM_JOB_ID": "12", "SLURM_PROCID": "3"}, "9:00\n", None),  # one rank asks, not all of them
        ({"SLURM_JOB_ID": "12"}, "UNLIMITED\n", None),
        ({"SLURM_JOB_ID": "12"}, "NOT_SET\n", None),
        ({"SLURM_JOB_ID": "12"}, "\n", None),
        ({"SLURM_JOB_ID": "12"}, "", None),
        ({"SLURM_JOB_ID": "12; reboot"}, "9:00\n", None),
        ({"PBS_JOBID": "12.host"}, "9:00\n", None),
        ({}, "9:00\n", None),
    ],
)
def test_seconds_left(environ: dict[str, str], answer: str, left: float | None) -> None:
    assert seconds_left(environ, squeue(answer), lambda: NOW) == left


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        ("srun -t 30 -N 2 python3 t.py", 1800),
        ("srun --time=1:00:00 bash -c 'srun -t 5 python3 t.py'", 300),
        ("srun -N 2 python3 t.py", None),
        ("srun -t 0 python3 t.py", None),  # no limit
        ("torchrun t.py --time 3", None),
    ],
)
def test_the_limit_of_a_step(line: str, seconds: int | None) -> None:
    import shlex

    assert step_limit(read_launch_line(shlex.split(line))) == seconds

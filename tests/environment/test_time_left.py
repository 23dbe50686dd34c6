"""How long the scheduler lets the job still run."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

import pytest

from doctor.cli.preflight import within_time_left
from doctor.cli.smoke import warn_of_time_left
from doctor.environment.time_left import seconds_left, step_limit
from doctor.hosts.selection import HostSelection
from doctor.job.launch_line import read_launch_line
from doctor.preflight.options import PreflightOptions
from doctor.smoke.plan import SmokeOptions

NOW = 1_800_000_000.0


def squeue(answer: str) -> Callable[[Sequence[str]], str]:
    def run(argv: Sequence[str]) -> str:
        assert list(argv) == ["squeue", "--noheader", "--jobs", "12", "--format", "%L"]
        if not answer:
            raise OSError("squeue is not installed")
        return answer

    return run


@pytest.mark.parametrize(
    ("environ", "answer", "remaining"),
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
def test_seconds_left(environ: dict[str, str], answer: str, remaining: float | None) -> None:
    assert seconds_left(environ, squeue(answer), lambda: NOW) == remaining


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
    assert step_limit(read_launch_line(shlex.split(line))) == seconds


@pytest.mark.parametrize(
    ("remaining", "budget", "warns"), [(None, 60.0, False), (65.0, 60.0, False), (64.0, 59.0, True), (2.0, 1.0, True)]
)
def test_a_preflight_ends_before_its_job(
    remaining: float | None, budget: float, warns: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    options = within_time_left(PreflightOptions(hosts=HostSelection(), budget=60.0), remaining)
    assert (options.budget, options.launch.time_left_s) == (budget, remaining)
    assert ("the scheduler ends the job in" in capsys.readouterr().err) == warns


@pytest.mark.parametrize(("remaining", "warns"), [(None, False), (121.0, True), (220.0, False)])
def test_a_smoke_run_that_outlasts_its_job(
    remaining: float | None, warns: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    warn_of_time_left(SmokeOptions(budget=120.0, soak=100.0), remaining)
    assert ("the run may take 220 s" in capsys.readouterr().err) == warns

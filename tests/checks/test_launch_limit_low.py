from __future__ import annotations

import pytest

from doctor.engine.result import Outcome
from doctor.job import LaunchConfig
from doctor.job.job_script import read_job_script
from tests.checks.limits import limits
from tests.checks.run_check import run_check

NAME = "launch-limit-low"
TORCHRUN = "torchrun --nproc-per-node 8 t.py"


def judged(text: str, launch: str = TORCHRUN, **hosts: list[object]) -> Outcome:
    (line,) = read_job_script(f"{text}\n{launch}\n").launch_lines
    return run_check(NAME, hosts, LaunchConfig(limits=dict(line.limits), world_size=8))


@pytest.mark.parametrize(
    ("text", "launch"),
    [
        ("ulimit -n 65535 -s unlimited", TORCHRUN),
        ("ulimit -c 0; ulimit -l 64", TORCHRUN),
        ("ulimit -Hn 20", TORCHRUN),
        ("ulimit -H -n 20", TORCHRUN),
        ("( ulimit -n 20 )", TORCHRUN),
        ('if [ -n "$DEBUG" ]; then ulimit -v 1000; fi', TORCHRUN),
        ("ulimit -n hard", TORCHRUN),
        ("ulimit -n 20", "mpirun -np 4 -H a,b python3 t.py"),
    ],
)
def test_what_leaves_enough(text: str, launch: str) -> None:
    assert judged(text, launch).findings == ()


@pytest.mark.parametrize(
    ("text", "message", "is_warning"),
    [
        ("ulimit -n 30", "`ulimit -n 30`, which gives each process 30 open files; expected 16384", False),
        ("ulimit -Sn 31", "`ulimit -n 31`, which gives each process 31 open files; expected 16384", True),
        ("ulimit -v 700000", "`ulimit -v 700000`, which gives each process 684 MiB; expected no limit", False),
        ("ulimit -t 3600 -n 65535", "`ulimit -t 3600`, which gives each process 60 min; expected no limit", True),
        ("ulimit -f 1000", "`ulimit -f 1000`, which gives each process 1000 KiB; expected no limit", False),
    ],
)
def test_what_ends_a_rank_and_what_may(text: str, message: str, is_warning: bool) -> None:
    (finding,) = judged(text).findings
    assert (str(finding), finding.is_warning) == (f"the script sets {message}", is_warning)


def test_tasks_of_slurm_have_the_limits_of_the_script() -> None:
    assert len(judged("ulimit -n 30", f"srun -N 2 {TORCHRUN}").findings) == 1


def test_where_hosts_are_read_their_limits_tell_it() -> None:
    assert judged("ulimit -n 20", a=[limits()]).findings == ()

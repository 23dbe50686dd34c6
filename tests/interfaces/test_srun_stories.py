"""Lines of srun, each as a real gloo job of two hosts beside preflight: an error exactly where the job dies.

Two are no errors: a program may have an address of its own where MASTER_ADDR is not passed on, which is a warning; and
what a user's prolog does is not tried.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from tests.hosts.fleet import Fleet
from tests.hosts.slurm import needs_slurm
from tests.jobs.site import Site

TRAIN = """
import datetime, os, torch
import torch.distributed as d
os.environ.setdefault("MASTER_PORT", "29533")
d.init_process_group("gloo", rank=int(os.environ["SLURM_PROCID"]), world_size=int(os.environ["SLURM_NTASKS"]),
                     timeout=datetime.timedelta(seconds=20))
d.all_reduce(torch.ones(4))
print("rank", d.get_rank(), "of", d.get_world_size(), flush=True)
d.destroy_process_group()
"""
SCRIPT = """#!/bin/bash
export GLOO_SOCKET_IFNAME=eth0 OMP_NUM_THREADS=1
{before}
doctor preflight --net off --select {checks} --budget 90 -- srun {line}
echo preflight=$?
timeout 60 srun {line}
echo job=$?
"""
CHECKS = "launch-option-refused,launch-program-missing,master-address-wrong,launch-settings-invalid,rank-numbers-wrong"
FIRST, SECOND = "export MASTER_ADDR=story0001", "export MASTER_ADDR=story0002"


class Row(NamedTuple):
    """A line of srun, files beside it, what the script does before it, and whether the job dies."""

    line: str
    dies: bool
    files: dict[str, str] = {}
    before: str = FIRST
    is_error: bool = True
    """Of a job that dies."""


P = f"{sys.executable} train.py"
ROWS = [
    Row(P, False),
    Row(P, True, before=SECOND),
    Row("--multi-prog tasks", False, {"tasks": f"# ranks\n0 {P}\n1-1 {P} %t\n"}),
    Row("--multi-prog tasks", False, {"tasks": f"* {P}\n"}),
    Row("--multi-prog tasks", True, {"tasks": f"0 {P}\n1 ./absent\n"}),
    Row("--multi-prog tasks", True, {"tasks": f"0 {P}\n1 absent-program\n"}),
    Row("--multi-prog tasks", True, {"tasks": f"0 {P}\n"}),
    Row("--multi-prog tasks", True, {"tasks": f"0-1 {sys.executable} absent.py\n"}),
    Row("--multi-prog absent", True),
    Row(f"--export=NONE {P}", True, is_error=False),
    Row(f"--export=MASTER_PORT {P}", True, is_error=False),
    Row(f"--export=MASTER_ADDR,GLOO_SOCKET_IFNAME {P}", False),
    Row(f"-K1 {P}", False),
    Row(f"--task-prolog=$PWD/prolog {P}", True, {"prolog": "#!/bin/sh\nexit 3\n"}, is_error=False),
    Row(f"--task-prolog=$PWD/prolog {P}", False, {"prolog": "#!/bin/sh\necho export A=1\n"}),
    Row(
        f"--task-prolog=$PWD/prolog {P}",
        True,
        {"prolog": "#!/bin/sh\necho export MASTER_ADDR=10.9.9.9\n"},
        is_error=False,
    ),
    Row(f"--task-epilog=$PWD/epilog {P}", False, {"epilog": "#!/bin/sh\nexit 3\n"}),
    Row(f"taskset -c 999 {P}", True),
    Row(f"taskset -c 0 {P}", False),
    Row(f"{sys.executable} -m train", False),
    Row(f"{sys.executable} -m train", True, before=f"{FIRST} PYTHONSAFEPATH=1"),
    Row(P, True, {"random.py": "x = 1\n"}),
    Row(f"env A=1 nice -n 3 {P}", False),
    Row(f"env A=1 absent-program {P}", True),
    Row(f"--nosuchoption {P}", True),
    Row(f"bash -c 'exec {P}'", False),
    Row(f"bash -c 'exec {sys.executable} absent.py'", True),
    Row(f"--chdir=/tmp {P}", True),
    Row(f"--kill-on-bad-exit=1 --label {P}", False),
    Row(f"-n 2 --ntasks-per-node=1 --cpu-bind=none {P}", False),
]


@pytest.fixture(scope="module")
def site(make_fleet: Callable[..., Fleet]) -> Iterator[Site]:
    created_site = Site(make_fleet, 2, name="story", subnet="10.75.0.0/16")
    try:
        created_site.start_slurm("SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0")
        yield created_site
    finally:
        created_site.end()


@pytest.mark.full
@pytest.mark.hosts
@pytest.mark.timeout(300)
@needs_slurm
@pytest.mark.parametrize("number", range(len(ROWS)), ids=lambda number: f"{number} {ROWS[number].line}"[:60])
def test_srun(site: Site, number: int) -> None:
    row, folder = ROWS[number], site.folder / str(number)
    folder.mkdir()
    for name, text in {"train.py": TRAIN, **row.files}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / "job.sh").write_text(SCRIPT.format(line=row.line, before=row.before, checks=CHECKS))
    site.wait(site.run("sbatch", "--parsable", "--nodes=2", "--ntasks=2", "--output=out", "job.sh", cwd=folder))
    output = (folder / "out").read_text()
    assert ("job=0" not in output) == row.dies, output
    assert f"preflight={10 if row.dies and row.is_error else 0}" in output, output

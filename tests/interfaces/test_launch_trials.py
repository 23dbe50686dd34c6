"""Real launchers that are asked whether they start a line: refused exactly where the real job dies."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from doctor.engine.record import LaunchOptions
from doctor.environment.job_environment import of_launch_line
from doctor.job import LaunchConfig
from tests.checks.launch_lines import run_check
from tests.hosts.fleet import Fleet
from tests.hosts.slurm import needs_slurm
from tests.jobs.site import Site

AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
MPIRUN = [
    ("-np 1", {}, False),
    ("-np 4000", {}, True),
    ("-np 4 --oversubscribe", {}, False),
    ("--hostfile {}/two -np 3", {}, True),
    ("--hostfile {}/two -np 2", {}, False),
    ("--rankfile {}/absent -np 1", {}, True),
    ("--mca orte_rankfile {}/absent -np 1", {}, True),
    ("--map-by rankfile:file={}/absent -np 1", {}, True),
    ("--app {}/absent", {}, True),
    ("--mca plm nosuch -np 1", {}, True),
    ("--mca rmaps nosuch -np 1", {}, True),
    ("--mca ess nosuch -np 1", {}, True),
    ("-np 1", {"OMPI_MCA_plm": "^nosuch"}, False),
    ("-np 1", {"OMPI_MCA_plm": "rsh,nosuch"}, True),
    ("-np 1", {"OPAL_PREFIX": "/usr/share"}, True),
    ("-np 1", {"TMPDIR": "{}/two"}, True),
    ("-np 1", {"TMPDIR": "{}/new/new"}, False),
    ("-x TMPDIR={}/two -np 1", {}, False),
    ("--mca oob_tcp_if_include nosuch0 -np 1", {}, True),
    ("--host localhost:1 -np 2", {}, True),
    ("--host localhost:2 -np 2", {}, False),
    ("-np 1 --nosuchoption", {}, True),
    ("--rankfile {}/beyond -np 1", {}, True),
    ("--rankfile {}/first -np 1", {}, False),
    ("--hostfile {}/two --rankfile {}/beyond -np 1", {}, True),
    ("--cpu-set 7777 -np 1", {}, True),
    ("--app {}/programs", {}, False),
    ("--app {}/many", {}, True),
    ("--oversubscribe --app {}/programs", {}, False),
    ("--app {}/missing", {}, True),
    ("-np 1 true : -np 1 absent-program :", {}, True),
]
FILES = {
    "two": "localhost slots=2\n",
    "beyond": "rank 0=localhost slot=7777\n",
    "first": "rank 0=localhost slot=0\n",
    "programs": "# one program\n-np 1 true\n",
    "many": "-np 40 true\n\n-np 2 true\n",
    "missing": "-np 1 true\n-np 1 ./absent\n",
}


@pytest.mark.skipif(not shutil.which("orterun"), reason="needs Open MPI")
@pytest.mark.parametrize(("options", "environ", "dies"), MPIRUN)
def test_mpirun(options: str, environ: dict[str, str], dies: bool, tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    variables = {name: value.format(tmp_path) for name, value in environ.items()}
    variables = {**AS_ROOT, "PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **variables}
    program = [] if "--app" in options else ["true"]
    line = ["mpirun", *shlex.split(options.replace("{}", str(tmp_path))), *program]
    done = subprocess.run(line, env=variables, capture_output=True, timeout=60)
    assert bool(done.returncode) == dies, done.stderr
    launch = of_launch_line(line, variables, tries=True, is_next=True).complete(LaunchOptions())
    outcome = run_check("launch-option-refused", LaunchConfig.from_options(launch))
    assert bool(outcome.findings) == dies


@pytest.mark.skipif(not shutil.which("orterun"), reason="needs Open MPI")
@pytest.mark.parametrize("is_next", [True, False])
def test_the_interface_of_mpiruns_own_host_is_judged_where_the_line_is_started(is_next: bool) -> None:
    """Where another host starts it, that one may have the interface: `interface-setting-wrong` looks there."""
    line = ["mpirun", "-np", "2", "-H", "w1,w2", "--mca", "oob_tcp_if_include", "eth77", "true"]
    environ = {**AS_ROOT, "PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    launch = of_launch_line(line, environ, tries=True, is_next=is_next).complete(LaunchOptions())
    outcome = run_check("launch-option-refused", LaunchConfig.from_options(launch))
    assert bool(outcome.findings) == is_next


class Row(NamedTuple):
    """Options of srun in an allocation of two nodes, what its script sets, and whether the job dies."""

    options: str
    dies: bool
    before: str = ""


SRUN = [
    Row("", False),
    Row("--ntasks-per-node=2 -n 4", True),  # the allocation has two tasks
    Row("--overlap --exact", False),
    Row("--cpus-per-task=32", True),
    Row("--mem=4GBytes", True),
    Row("--gres=gpu:2", True),
    Row("--distribution=blok", True),
    Row("--cpu-bind=coers", True),
    Row("--mpi=pmix_v9", True),
    Row("--exclude=trial0001", True),
    Row("-w trial0003 -N 1 -n 1", True),
    Row("--het-group=1", True),
    Row("-n 40", True),
    Row("-n 40 --overcommit", False),
    Row("--relative=3", True),
    Row("--container-image=pytorch", True),
    Row("--output=/nowhere/at/all/%j.out", True),
    Row("", True, "export SLURM_CPU_BIND=sideways"),
    Row("", True, "export SLURM_MPI_TYPE=pmix"),
    Row("", True, "export SLURM_NTASKS=5"),
]
SCRIPT = """#!/bin/bash
{before}
doctor preflight --tier quick --select launch-option-refused --budget 60 -- srun {options} {python} -c 1
echo preflight=$?
srun {options} {python} -c 1
echo job=$?
"""


@pytest.fixture(scope="module")
def site(make_fleet: Callable[..., Fleet]) -> Iterator[Site]:
    created_site = Site(make_fleet, 3, name="trial", subnet="10.74.0.0/16")
    try:
        created_site.start_slurm("SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0")
        yield created_site
    finally:
        created_site.end()


@pytest.mark.full
@pytest.mark.hosts
@pytest.mark.timeout(240)
@needs_slurm
@pytest.mark.parametrize("row", SRUN, ids=lambda row: f"{row.before} {row.options}".strip() or "plain")
def test_srun(site: Site, row: Row, tmp_path: Path) -> None:
    folder = site.folder / str(SRUN.index(row))
    folder.mkdir()
    (folder / "job.sh").write_text(SCRIPT.format(options=row.options, before=row.before, python=sys.executable))
    site.wait(site.run("sbatch", "--parsable", "--nodes=2", "--ntasks=2", "--output=out", "job.sh", cwd=folder))
    output = (folder / "out").read_text()
    assert ("job=0" not in output) == row.dies, output
    assert f"preflight={10 if row.dies else 0}" in output, output

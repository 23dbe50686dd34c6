"""The job script for batch schedulers, as printed, on real hosts: with the files and variables of each scheduler.

None of these schedulers can be installed next to the tests, so their variables are those of their manuals; Open MPI is
real. In each job the fault is on the second host: who looks at the first alone says OK.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import pytest

from tests.hosts.fleet import Fleet
from tests.hosts.slurm import needs_mpirun
from tests.jobs.scripts import TRAIN, script, trained
from tests.jobs.site import FAULT, Site

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(180)]
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
LINE = re.compile(r"^doctor preflight: .*$", re.MULTILINE)
Done = subprocess.CompletedProcess[str]


class Job(NamedTuple):
    """How a scheduler names two hosts. ``{file}``: the path of its file; ``{a}`` and ``{b}``: the hosts."""

    variables: Mapping[str, str]
    text: str = ""


JOBS = {
    "pbs": Job({"PBS_JOBID": "1", "PBS_ENVIRONMENT": "PBS_BATCH", "PBS_NODEFILE": "{file}"}, "{a}\n{a}\n{b}\n{b}\n"),
    "lsf": Job({"LSB_JOBID": "1", "LSB_MCPU_HOSTS": "{a} 8 {b} 8"}),
    "grid_engine": Job(
        {"JOB_ID": "1", "NHOSTS": "2", "PE_HOSTFILE": "{file}"},
        "{a} 8 all.q@{a} UNDEFINED\n{b} 8 all.q@{b} UNDEFINED\n",
    ),
    "donau": Job({"CCS_JOB_ID": "1", "CCS_ALLOC_FILE": "{file}"}, "{a} 64 64\n{b} 64 64\n"),
}


@pytest.fixture(scope="module")
def site(make_fleet: Callable[..., Fleet]) -> Iterator[Site]:
    created_site = Site(make_fleet, 2, name="bat", subnet="10.69.0.0/16")
    (created_site.folder / "train.py").write_text(TRAIN)
    (created_site.folder / "job.sh").write_text(script("batch"))
    yield created_site
    created_site.end()


def submit(site: Site, name: str) -> Done:
    """The script on the first host of the job, in the environment that the scheduler makes."""
    (a, b), job = site.hosts, JOBS[name]
    path = site.folder / f"{name}.hosts"
    path.write_text(job.text.format(a=a, b=b))
    environ = {variable: value.format(file=path, a=a, b=b) for variable, value in job.variables.items()}
    return site.enter(a, "bash job.sh", environ)


@pytest.mark.parametrize("name", JOBS)
def test_a_fault_on_the_second_host_stops_the_job(site: Site, name: str) -> None:
    bad = site.hosts[1]
    with site.closed_tmp(bad):
        done = submit(site, name)
    assert (done.returncode, trained(done.stdout)) == (10, []), done
    [line] = LINE.findall(done.stdout)
    assert f"FAIL nodes=1/2 bad={bad} why={FAULT}:{bad} where={name}:1 " in line


@pytest.mark.every
def test_a_healthy_job_runs(site: Site) -> None:
    done = submit(site, "pbs")
    assert (done.returncode, trained(done.stdout)) == (0, [site.hosts[0]]), done
    [line] = LINE.findall(done.stdout)
    assert "OK nodes=2/2 where=pbs:1 " in line
    assert "this host alone" not in done.stderr


def test_a_node_file_that_cannot_be_read_is_never_ok(site: Site) -> None:
    """As in a container, which does not have the scheduler's folders."""
    environ = {"PBS_JOBID": "1", "PBS_NODEFILE": "/var/spool/pbs/aux/1"}
    done = site.enter(site.hosts[0], "bash job.sh", environ)
    assert (done.returncode, trained(done.stdout)) == (12, []), done
    [line] = LINE.findall(done.stdout)
    assert "UNKNOWN nodes=1/1 why=hosts-unknown scope=this-host where=pbs:1 " in line
    assert "PBS_NODEFILE=/var/spool/pbs/aux/1: No such file or directory" in done.stderr
    with site.closed_tmp(site.hosts[0]):
        assert site.enter(site.hosts[0], "bash job.sh", environ).returncode == 10
    done = site.enter(site.hosts[0], "doctor preflight --scope local", environ)
    assert (done.returncode, " scope=this-host " in done.stdout) == (0, True), done
    assert "this host alone was checked" in done.stderr


@needs_mpirun
def test_the_default_hostfile_is_that_of_mpirun(site: Site) -> None:
    first, bad = site.hosts
    (site.folder / "default-hosts").write_text(f"{first} slots=1\n{bad} slots=1\n")
    environ = {**AS_ROOT, "OMPI_MCA_orte_default_hostfile": f"{site.folder}/default-hosts"}
    done = site.enter(first, "mpirun python3 train.py", environ)
    assert trained(done.stdout) == [first, bad], done
    with site.closed_tmp(bad):
        done = site.enter(first, "doctor preflight", environ)
    [line] = LINE.findall(done.stdout)
    assert f"FAIL nodes=1/2 bad={bad} why={FAULT}:{bad} where=hostfile " in line


@needs_mpirun
def test_ranks_that_do_not_know_the_hosts_are_never_ok(site: Site) -> None:
    first, second = site.hosts
    done = site.enter(first, f"mpirun --host {first},{second} doctor preflight", AS_ROOT)
    assert done.returncode == 12, done
    assert "why=hosts-unknown scope=this-host where=openmpi " in done.stdout
    assert "(2 or more)" in done.stderr

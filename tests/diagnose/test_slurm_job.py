"""`doctor diagnose --job slurm:ID` on a real Slurm: memory, time limit, a lost node, a cancelled job, a forgotten one.

Three hosts in namespaces of their own, each with a slurmd, and one folder that all of them share.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jsonschema
import pytest

from tests.diagnose.test_command import SCHEMA
from tests.hosts.fleet import Fleet
from tests.hosts.slurm import ABSENT_PROGRAMS
from tests.jobs.site import Site
from tests.smoke.interpreter import ROOT

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        bool(ABSENT_PROGRAMS) and os.environ.get("CI") != "true", reason=f"not installed: {', '.join(ABSENT_PROGRAMS)}"
    ),
]
SETTINGS = """\
MinJobAge=60
SlurmdTimeout=5
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
"""
MEMORY = """\
srun -l python3 -c '
import os, time
held = b"x" * (400 << 20 if os.environ["SLURM_PROCID"] == "1" else 9)
time.sleep(100)
'
"""
SLEEP = "sh -c 'touch began-$SLURM_JOB_ID-$SLURM_PROCID; exec sleep 200'"
RUNNING = re.compile(r"\bJobState=RUNNING\b.* BatchHost=")


class Jobs(NamedTuple):
    """Job numbers by what befell them."""

    site: Site
    numbers: dict[str, str]

    def diagnose(self, name: str, *arguments: str) -> tuple[int, dict[str, Any]]:
        done = command(self.site, "--job", f"slurm:{self.numbers[name]}", "--json", *arguments)
        assert done.stdout and "Traceback" not in done.stderr, done.stderr
        document = json.loads(done.stdout)
        jsonschema.validate(document, SCHEMA)
        return done.returncode, document


def command(site: Site, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "doctor", "diagnose", "-F", str(site.fleet.ssh_config), *arguments]
    done: subprocess.CompletedProcess[str] = site.fleet.run(
        argv, env={**site.environ, "PYTHONPATH": str(ROOT)}, cwd=site.folder, timeout=100
    )
    return done


def submit(site: Site, name: str, text: str, *options: str) -> str:
    path = site.folder / f"{name}.sh"
    path.write_text(f"#!/bin/sh\n{text}\n")
    return site.run("sbatch", "--parsable", "--no-requeue", "--ntasks-per-node=1", *options, str(path))


@pytest.fixture(scope="module")
def jobs(make_fleet: Callable[..., Fleet]) -> Iterator[Jobs]:
    """All of them at once: what they wait for is Slurm's own timeouts."""
    site = Site(make_fleet, 3, name="end", subnet="10.75.0.0/16")
    try:
        site.start_slurm(SETTINGS)
        first, second, third = site.hosts
        small = "--mem=50"
        numbers = {
            "memory": submit(site, "memory", MEMORY, "-N2", f"-w{first},{second}", "--mem=100"),
            "time": submit(site, "time", f"srun {SLEEP}", f"-w{first}", small),
            "cancelled": submit(site, "cancelled", f"srun {SLEEP}", f"-w{second}", small),
            "node": submit(site, "node", f"srun -l {SLEEP}", "-N2", f"-w{second},{third}", small),
            "local": submit(
                site, "local", "echo 'disk: No space left on device'; exit 1", f"-w{first}", "-o/var/%j", small
            ),
            "good": submit(site, "good", "echo training finished", f"-w{first}", small),
        }
        for name in ("time", "cancelled", "node"):
            site.wait(numbers[name], RUNNING)
        # A job runs before its step does, and a step that never began fails in another way.
        for file in (f"began-{numbers['time']}-0", f"began-{numbers['cancelled']}-0", f"began-{numbers['node']}-1"):
            site.until((site.folder / file).exists)
        site.run("scontrol", "update", f"JobId={numbers['time']}", "EndTime=now+1")
        site.run("scancel", numbers["cancelled"])
        site.fleet.enter(third, f"kill -KILL $(cat {site.environ['SLURM_CONF'].rpartition('/')[0]}/slurmd.pid)")
        for number in numbers.values():
            ended(site, number)
        yield Jobs(site, numbers)
    finally:
        site.end()


def ended(site: Site, number: str) -> None:
    """Slurm looks at time limits every 30 s, and waits for a silent node longer than the site's patience."""
    for last in (False, False, True):
        try:
            site.wait(number)
            return
        except TimeoutError:
            if last:
                raise


def test_a_rank_that_used_too_much_memory_is_named_with_its_host(jobs: Jobs) -> None:
    code, document = jobs.diagnose("memory")
    (cause,) = document["causes"]
    assert code == 10 and cause["signature"] == "slurm-memory-limit"
    assert (cause["ranks"], cause["hosts"]) == ([1], [jobs.site.hosts[1]])


def test_a_job_that_reached_its_time_limit_has_no_culprit(jobs: Jobs) -> None:
    code, document = jobs.diagnose("time")
    (cause,) = document["causes"]
    assert (code, cause["signature"], cause["count"]) == (10, "slurm-time-limit", 0)
    assert document["source"].endswith("(TIMEOUT)")


def test_a_cancelled_job_has_no_culprit(jobs: Jobs) -> None:
    code, document = jobs.diagnose("cancelled")
    (cause,) = document["causes"]
    assert (code, cause["signature"], cause["count"]) == (10, "slurm-cancelled", 0)


def test_the_node_that_slurm_lost_is_named_and_no_other(jobs: Jobs) -> None:
    code, document = jobs.diagnose("node")
    assert code == 10 and {host for cause in document["causes"] for host in cause["hosts"]} == {jobs.site.hosts[2]}


def test_the_state_alone_names_the_node_where_the_output_is_lost(jobs: Jobs) -> None:
    output = jobs.site.folder / f"slurm-{jobs.numbers['node']}.out"
    hidden = output.rename(output.with_suffix(".hidden"))
    try:
        code, document = jobs.diagnose("node")
    finally:
        hidden.rename(output)
    (cause,) = document["causes"]
    assert (code, cause["signature"], cause["confidence"]) == (10, "slurm-job-node-failed", "likely")
    assert cause["hosts"] == [jobs.site.hosts[2]]


def test_output_on_the_disk_of_a_node_is_read_there(jobs: Jobs) -> None:
    code, document = jobs.diagnose("local")
    (cause,) = document["causes"]
    assert (code, cause["signature"]) == (10, "disk-full")
    assert cause["evidence"][0]["file"] == f"{jobs.site.hosts[0]}:/var/{jobs.numbers['local']}"


def test_a_job_that_ended_well_has_no_cause(jobs: Jobs) -> None:
    code, document = jobs.diagnose("good")
    assert (code, document["verdict"], document["causes"]) == (0, "ended-well", [])


def test_a_job_that_slurm_does_not_know_is_one_line(jobs: Jobs) -> None:
    done = command(jobs.site, "--job", "slurm:99999")
    assert done.returncode == 78
    assert done.stderr.count("\n") == 1
    assert "scontrol no longer knows the job (MinJobAge); there is no accounting (sacct)" in done.stderr


@pytest.mark.parametrize("text", ["slurm:", "slurm:1;rm", "pbs:1", "1234", "slurm:-1"])
def test_a_job_of_another_form_is_a_usage_error(jobs: Jobs, text: str) -> None:
    assert command(jobs.site, "--job", text).returncode == 2

"""The README's job scripts on a real Slurm, as they stand there, with a fault on one host and without.

Four hosts in namespaces of their own, each with a slurmd and an sshd. The fault is real: a /tmp that is read-only. A
job waits two minutes after a requeue; that wait alone is cut short.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import preloaded
from tests.hosts.fleet import Fleet
from tests.hosts.slurm import ABSENT_PROGRAMS
from tests.jobs.scripts import TRAIN, script, trained
from tests.jobs.site import DOCTOR, FAULT, INSTALLED, Site

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        bool(ABSENT_PROGRAMS) and os.environ.get("CI") != "true", reason=f"not installed: {', '.join(ABSENT_PROGRAMS)}"
    ),
]
HEALTHCHECK, PROLOG = "/etc/slurm/doctor-healthcheck", "/etc/slurm/doctor-prolog"
QUIET = "#!/bin/sh\nexit 0\n"
SETTINGS = f"""\
HealthCheckProgram={HEALTHCHECK}
HealthCheckInterval=3
Prolog={PROLOG}
PrologFlags=Alloc
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1,nohold_on_prolog_fail
"""
INTERPRETER = [sys.executable, "-m", "doctor"]
LINE = re.compile(r"^doctor preflight: [A-Z].*$", re.MULTILINE)


@pytest.fixture(scope="module")
def site(make_fleet: Callable[..., Fleet]) -> Iterator[Site]:
    files = {HEALTHCHECK: QUIET, PROLOG: QUIET}
    created_site = Site(make_fleet, 4, name="job", subnet="10.73.0.0/16", files=files)
    try:
        created_site.start_slurm(SETTINGS)
        yield created_site
    finally:
        created_site.end()


class Job(NamedTuple):
    """A job that has come to its end."""

    number: str
    folder: Path
    record: str
    output: str

    @property
    def state(self) -> str:
        return self._field("JobState")

    @property
    def code(self) -> int:
        """The exit code of its script."""
        return int(self._field("ExitCode").partition(":")[0])

    @property
    def excluded(self) -> str:
        return self._field("ExcNodeList")

    def _field(self, name: str) -> str:
        observed_match = re.search(rf"\b{name}=(\S+)", self.record)
        assert observed_match, self.record
        return observed_match.group(1)

    @property
    def lines(self) -> list[str]:
        return LINE.findall(self.output)

    @property
    def report(self) -> dict[str, Any]:
        full: dict[str, Any] = json.loads((self.folder / f"doctor-{self.number}.json").read_text())
        return full


class Submit:
    """``submit(text, options)``: sbatch in a folder of its own; `ended` waits."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site, self.folder = site, folder
        (folder / "train.py").write_text(TRAIN)

    def __call__(self, text: str, *options: str) -> str:
        (self.folder / "job.sh").write_text(text)
        return self.site.run("sbatch", "--parsable", *options, "job.sh", cwd=self.folder)

    def ended(self, number: str) -> Job:
        output = self.site.wait(number)
        return Job(number, self.folder, output, (self.folder / f"slurm-{number}.out").read_text())

    def run(self, name: str, *options: str) -> Job:
        """A script of the README, to its end."""
        return self.ended(self(script(name), *options))


@pytest.fixture
def submit(site: Site, request: pytest.FixtureRequest) -> Submit:
    folder = site.folder / re.sub(r"\W", "_", request.node.name)
    folder.mkdir()
    return Submit(site, folder)


# -- the way by which srun starts ranks


@pytest.mark.parametrize("signal", ["KILL", "STOP"])
def test_a_dead_slurmd_is_seen_over_ssh(site: Site, signal: str) -> None:
    """SSH lets doctor in, and srun would not start a rank there."""
    assert site.slurm
    bad = site.hosts[3]
    arguments = [
        "doctor",
        "check",
        ",".join(site.hosts),
        "-F",
        str(site.fleet.ssh_config),
        "--json",
        "--select",
        "slurmd-not-running",
    ]
    environ = {**site.environ, "SLURM_JOB_ID": "7"}

    def slurmd_outcome() -> dict[str, Any]:
        done = site.fleet.run([*INTERPRETER, *arguments[1:]], env=environ, cwd=site.folder)
        outcomes = {outcome["check"]: outcome for outcome in json.loads(done.stdout)["outcomes"]}
        return outcomes["slurmd-not-running"]  # type: ignore[no-any-return]

    assert (slurmd_outcome()["status"], len(slurmd_outcome()["evaluated_hosts"])) == ("passed", 4)
    number = site.slurm.slurmd(bad)
    site.slurm.signal(bad, signal)
    try:
        (finding,) = slurmd_outcome()["findings"]
        assert finding["hosts"] == [bad]
        assert ("no slurmd runs" if signal == "KILL" else "is stopped") in finding["message"]
    finally:
        if signal == "KILL":
            site.slurm.start_slurmd(bad)
        else:
            site.fleet.enter(bad, f"kill -CONT {number}")


# -- stop on trouble


@pytest.mark.every
def test_a_healthy_job_runs(site: Site, submit: Submit) -> None:
    job = submit.run("stop-on-trouble", "--nodes=3")
    assert (job.state, job.code) == ("COMPLETED", 0), job
    assert trained(job.output) == list(site.hosts[:3])
    [line] = job.lines
    assert line.startswith("doctor preflight: OK nodes=3/3 ")
    assert (job.report["verdict"], job.report["hosts"]) == ("healthy", list(site.hosts[:3]))


@pytest.mark.every
def test_a_fault_on_one_host_stops_the_job_and_names_the_host(site: Site, submit: Submit) -> None:
    bad = site.hosts[1]
    with site.closed_tmp(bad):
        job = submit.run("stop-on-trouble", "--nodes=3")
    assert (job.state, job.code) == ("FAILED", 10), job
    assert trained(job.output) == []
    [line] = job.lines
    assert line.startswith(f"doctor preflight: FAIL nodes=2/3 bad={bad} why={FAULT}:{bad} ")
    assert (job.report["verdict"], job.report["exit"]) == ("failed", 10)


# -- what doctor lint says of a job, and what becomes of it

GLOO = """\
import datetime, torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
dist.all_reduce(torch.ones(1))
print("met", dist.get_rank(), flush=True)
"""
TORCHRUN = f"{sys.executable} -m torch.distributed.run --nnodes 2 --nproc-per-node 1 --master-port 29647"
ON_EACH = "srun --kill-on-bad-exit=1 bash -c"
LAUNCHES = {
    "the script's own number": (
        f"srun {TORCHRUN} --node-rank $SLURM_NODEID --master-addr HOST gloo.py",
        "rank-numbers-wrong",
    ),
    "each host's number": (f"{ON_EACH} '{TORCHRUN} --node-rank $SLURM_NODEID --master-addr HOST gloo.py'", ""),
    "each host's name": (
        f"{ON_EACH} '{TORCHRUN} --node-rank $SLURM_NODEID --master-addr $(hostname) gloo.py'",
        "launch-differs",
    ),
    "on one host alone": (
        f"{TORCHRUN} --node-rank $SLURM_NODEID --master-addr HOST gloo.py",
        "launch-sizes-contradict",
    ),
}


@pytest.mark.full
@pytest.mark.torch
@pytest.mark.parametrize("name", LAUNCHES)
def test_lint_fails_a_launch_exactly_where_its_ranks_do_not_meet(site: Site, submit: Submit, name: str) -> None:
    line, check = LAUNCHES[name]
    (submit.folder / "gloo.py").write_text(GLOO)
    text = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n" + line.replace("HOST", site.hosts[0])
    number = submit(f"{text} &\nwait_for=$!\n( sleep 25; kill $wait_for ) &\nwait $wait_for\n")
    job = submit.ended(number)
    assert sorted(re.findall(r"met (\d)", job.output)) == ([] if check else ["0", "1"]), job.output
    (submit.folder / "lint.sh").write_text(f"{text}\n")
    done = preloaded.run(
        [*INTERPRETER, "lint", str(submit.folder / "lint.sh"), "--json"], capture_output=True, text=True
    )
    failed = [outcome["check"] for outcome in json.loads(done.stdout)["outcomes"] if outcome["findings"]]
    assert failed == [check] * bool(check)


# -- heterogeneous jobs


@pytest.mark.sample
@pytest.mark.parametrize("transport", ["ssh", "slurm"])
def test_every_component_of_a_heterogeneous_job_is_checked(site: Site, submit: Submit, transport: str) -> None:
    text = f"#!/bin/bash\ndoctor preflight --transport {transport} --report doctor-$SLURM_JOB_ID.json\n"
    bad = site.hosts[2]
    with site.closed_tmp(bad):
        job = submit.ended(submit(text, "--nodes=1", ":", "--nodes=2"))
    assert job.code == 10, job
    [line] = job.lines
    assert line.startswith(f"doctor preflight: FAIL nodes=2/3 bad={bad} why={FAULT}:{bad} "), line
    assert job.report["hosts"] == list(site.hosts[:3])


def test_a_healthy_heterogeneous_job_runs(site: Site, submit: Submit) -> None:
    text = "#!/bin/bash\ndoctor preflight --transport slurm || exit\nsrun --het-group=0,1 python3 train.py\n"
    job = submit.ended(submit(text, "--nodes=1", ":", "--nodes=2"))
    assert (job.code, trained(job.output)) == (0, list(site.hosts[:3])), job
    assert job.lines[0].startswith("doctor preflight: OK nodes=3/3 ")


# -- time


@pytest.mark.full
def test_a_budget_ends_before_the_job_does(site: Site, submit: Submit) -> None:
    text = "#!/bin/bash\nenv | grep ^SLURM_JOB_END_TIME; doctor preflight --transport slurm --budget 10m\n"
    job = submit.ended(submit(text, "--nodes=1", "--time=1"))
    observed_match = re.search(r"the scheduler ends the job in (\d+) s: the budget is (\d+) s, not 600 s", job.output)
    assert observed_match, job.output
    remaining, budget = map(int, observed_match.groups())
    assert 0 < budget == remaining - 5 < 60
    assert job.lines[0].startswith("doctor preflight: OK nodes=1/1 ")


# -- spares


def test_a_job_with_spares_goes_on_without_the_bad_host(site: Site, submit: Submit) -> None:
    first, bad, third, _ = site.hosts
    with site.closed_tmp(bad):
        job = submit.run("spares", "--nodes=4")
    assert (job.state, job.code) == ("COMPLETED", 0), job
    assert trained(job.output) == [first, third]
    assert f" bad={bad} " in job.lines[0]


@pytest.mark.sample
def test_more_bad_hosts_than_spares_stop_the_job(site: Site, submit: Submit) -> None:
    with site.closed_tmp(*site.hosts[1:]):
        job = submit.run("spares", "--nodes=4")
    assert (job.state, job.code, trained(job.output)) == ("FAILED", 10, []), job


# -- requeue


@pytest.mark.sample
def test_a_requeued_job_runs_without_the_bad_host_and_those_it_excluded_before(site: Site, submit: Submit) -> None:
    bad, second, third, excluded = site.hosts
    with site.closed_tmp(bad):
        job = submit.run("requeue", "--nodes=2", f"--exclude={excluded}")
    assert (job.state, job.code) == ("COMPLETED", 0), job
    assert trained(job.output) == [second, third]
    assert set(job.excluded.split(",")) == {bad, excluded}
    assert len(job.lines) == 2


@pytest.mark.sample
def test_the_third_requeue_is_the_last(site: Site, submit: Submit) -> None:
    with site.closed_tmp(*site.hosts):
        job = submit.run("requeue", "--nodes=1")
    assert (job.state, job.code, trained(job.output)) == ("FAILED", 10, []), job
    assert [re.findall(r" bad=(\S+)", line) for line in job.lines] == [[host] for host in site.hosts]


def test_what_no_host_is_to_blame_for_requeues_nothing(site: Site, submit: Submit) -> None:
    job = submit.run("requeue", "--nodes=1", "--export=ALL,DOCTOR_SKIP=no-such-check")
    assert (job.state, job.code, trained(job.output)) == ("FAILED", 78, []), job
    assert "Restarts=0" in job.record


# -- without SSH


@pytest.fixture
def no_ssh(site: Site) -> Iterator[None]:
    """No host lets anybody in."""
    with site.broken(*site.hosts, sh="mv /root/.ssh /root/.not", mended="mv /root/.not /root/.ssh"):
        yield


@pytest.mark.sample
@pytest.mark.parametrize("name", ["node-merge", "transport-slurm"])
def test_slurm_carries_the_checks_where_ssh_is_forbidden(site: Site, submit: Submit, name: str, no_ssh: None) -> None:
    job = submit.run(name, "--nodes=3")
    assert (job.state, trained(job.output)) == ("COMPLETED", list(site.hosts[:3])), job
    bad = site.hosts[2]
    with site.closed_tmp(bad):
        job = submit.run(name, "--nodes=3")
    assert (job.state, job.code, trained(job.output)) == ("FAILED", 10, []), job
    assert re.search(rf"{FAULT}\b.*\b{bad}\b", job.output), job


@pytest.mark.sample
def test_a_node_that_left_no_file_stops_the_job(site: Site, submit: Submit) -> None:
    with site.broken(site.hosts[1], sh=f"chmod 000 {INSTALLED}", mended=f"chmod 755 {INSTALLED}"):
        job = submit.run("node-merge", "--nodes=3")
    assert job.state == "FAILED", job
    assert job.code in (10, 12), job
    assert trained(job.output) == []
    assert site.hosts[1] in job.output


# -- the end of a job in the midst of preflight


def test_a_job_that_is_cancelled_while_doctor_looks_leaves_a_whole_report(site: Site, submit: Submit) -> None:
    """The script traps the signal so as to tell the code."""
    text = "#!/bin/bash\ntrap : TERM\ndoctor preflight --report doctor-$SLURM_JOB_ID.json\necho code=$?\n"
    mute = site.hosts[1]
    with site.mute(mute):
        number = submit(text, "--nodes=2")
        site.until(lambda: site.visited(mute))
        site.run("scancel", number)
        job = submit.ended(number)
    site.until(lambda: "code=" in (submit.folder / f"slurm-{number}.out").read_text())
    observed_text = (submit.folder / f"slurm-{number}.out").read_text()
    assert "code=143\n" in observed_text
    assert job.report["exit"] == 143
    [line] = LINE.findall(observed_text)
    assert re.match("doctor preflight: UNKNOWN nodes=[01]/2 ", line), line


# -- health checks


def drained(site: Site, host: str) -> str:
    """Why it was taken out of service; empty: it was not."""
    state, _, reason = site.run("sinfo", "--noheader", "-N", "-n", host, "-o", "%T %E").partition(" ")
    return reason if state.startswith("drain") else ""


@pytest.fixture
def in_service(site: Site) -> Iterator[None]:
    """Brings the nodes that a test leaves drained back."""
    yield
    for host in site.hosts:
        if drained(site, host):
            site.run("scontrol", "update", f"NodeName={host}", "State=RESUME")


BROKEN = {
    "missing": "",
    "import-error": "#!/bin/sh\nexec python3 -c 'import doctor_that_is_not_there'\n",
    "killed": "#!/bin/sh\nkill -9 $$\n",
    "bug": "#!/bin/sh\nexit 70\n",
}


@pytest.fixture(params=BROKEN)
def broken_doctor(site: Site, request: pytest.FixtureRequest) -> Iterator[str]:
    """On the second host."""
    host, text = site.hosts[1], BROKEN[request.param]
    if text:
        site.put(host, INSTALLED, text)
    else:
        site.fleet.enter(host, f"rm {INSTALLED}")
    yield host
    site.put(host, INSTALLED, DOCTOR)


def healthcheck(site: Site, host: str) -> int:
    """As slurmd runs it: with next to no environment."""
    site.put(host, "/run/healthcheck", script("healthcheck"))
    return site.fleet.enter(host, ["/run/healthcheck"], check=False, env={"SLURMD_NODENAME": host}).returncode


def test_slurms_health_check_drains_a_node_and_brings_it_back(site: Site, in_service: None) -> None:
    bad = site.hosts[2]
    site.put(bad, HEALTHCHECK, script("healthcheck"))
    try:
        with site.closed_tmp(bad):
            site.until(lambda: drained(site, bad) == f"doctor: {FAULT}:{bad}")
        site.until(lambda: not drained(site, bad))
    finally:
        site.put(bad, HEALTHCHECK, QUIET)


@pytest.mark.every
def test_the_health_check_leaves_alone_what_an_administrator_drained(site: Site, in_service: None) -> None:
    host = site.hosts[1]
    site.run("scontrol", "update", f"NodeName={host}", "State=DRAIN", "Reason=fan is loud")
    with site.closed_tmp(host):
        assert healthcheck(site, host) == 0
    assert drained(site, host) == "fan is loud"
    assert healthcheck(site, host) == 0
    assert drained(site, host) == "fan is loud"


@pytest.mark.sample
def test_a_broken_doctor_neither_drains_nor_resumes(site: Site, broken_doctor: str, in_service: None) -> None:
    assert healthcheck(site, broken_doctor) == 0
    assert not drained(site, broken_doctor)
    site.run("scontrol", "update", f"NodeName={broken_doctor}", "State=DRAIN", "Reason=doctor: disk-full")
    assert healthcheck(site, broken_doctor) == 0
    assert drained(site, broken_doctor) == "doctor: disk-full"


def test_a_prolog_that_finds_a_fault_drains_the_node_and_the_job_waits_for_another(
    site: Site, submit: Submit, in_service: None
) -> None:
    bad, well = hosts = site.hosts[:2]
    for host in hosts:
        site.put(host, PROLOG, script("prolog"))
    try:
        with site.closed_tmp(bad):
            number = submit("#!/bin/sh\nsrun python3 train.py\n", f"--nodelist={bad},{well}")
            site.until(lambda: drained(site, bad) == "Prolog error")
        site.run("scontrol", "update", f"NodeName={bad}", "State=RESUME")
        job = submit.ended(number)
    finally:
        for host in hosts:
            site.put(host, PROLOG, QUIET)
    assert (job.state, trained(job.output)) == ("COMPLETED", [bad, well]), job
    assert "Restarts=1" in job.record


@pytest.mark.sample
def test_a_broken_doctor_stops_no_job(site: Site, submit: Submit, broken_doctor: str, in_service: None) -> None:
    site.put(broken_doctor, PROLOG, script("prolog"))
    try:
        job = submit.ended(submit("#!/bin/sh\nsrun python3 train.py\n", f"--nodelist={broken_doctor}"))
    finally:
        site.put(broken_doctor, PROLOG, QUIET)
    assert (job.state, trained(job.output)) == ("COMPLETED", [broken_doctor]), job
    assert not drained(site, broken_doctor)

"""`doctor watch --attach --job slurm:ID`: the ranks of a real Slurm job on two hosts, each with a slurmd.

Four Python processes wait as for a collective; the last one is put into one state after the other from outside.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from tests.hosts.fleet import Fleet
from tests.hosts.slurm import ABSENT_PROGRAMS
from tests.jobs.site import Site
from tests.smoke.interpreter import ROOT

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.full,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        bool(ABSENT_PROGRAMS) and os.environ.get("CI") != "true", reason=f"not installed: {', '.join(ABSENT_PROGRAMS)}"
    ),
]
RANK = """
import os, signal, socket, subprocess, threading, time

def next_job(number, frame):
    # vfork: until the child has opened its end of the FIFO, the kernel holds this process uninterruptibly
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, "/tmp/held", os.O_RDONLY, 0)])

def asks_a_server(number, frame):
    socket.create_connection(open("/tmp/server").read().split()).recv(1)

def looks_for_a_file(number, frame):
    while not os.path.exists("/tmp/score"):
        time.sleep(0.1)

signal.signal(signal.SIGUSR1, next_job)
signal.signal(signal.SIGUSR2, asks_a_server)
signal.signal(signal.SIGHUP, looks_for_a_file)
os.path.exists("/tmp/held") or os.mkfifo("/tmp/held")
open("/tmp/rank." + os.environ["SLURM_PROCID"], "w").write(str(os.getpid()))
while True:
    threading.Event().wait()
"""
NOBODY = "setpriv --reuid=65534 --regid=65534 --clear-groups"


class SlurmRanks(NamedTuple):
    """A job of four ranks on two hosts."""

    site: Site
    number: str

    def attach(self, *arguments: str) -> tuple[int, dict[str, Any], str]:
        command = [sys.executable, "-m", "doctor", "watch", "--attach", "--job", f"slurm:{self.number}", "--json"]
        command += ["--py-spy", "off", "-F", str(self.site.fleet.ssh_config), "--interval", "2", *arguments]
        environ = {**self.site.environ, "PYTHONPATH": str(ROOT)}
        done = self.site.fleet.run(command, env=environ, cwd=self.site.folder, timeout=120)
        assert "Traceback" not in done.stderr
        return done.returncode, json.loads(done.stdout or "{}"), done.stderr

    def finding(self) -> tuple[str, list[int], list[str], str]:
        """Check, ranks, hosts and text of the only finding."""
        code, report, errors = self.attach()
        results = [(outcome["check"], finding) for outcome in report["outcomes"] for finding in outcome["findings"]]
        assert (code, len(results)) == (10, 1), (report, errors)
        [(check, finding)] = results
        return check, finding["values"]["ranks"], finding["hosts"], finding["message"]

    @property
    def host(self) -> str:
        """That of rank 3."""
        return self.site.hosts[1]

    def enter(self, script: str) -> None:
        self.site.fleet.enter(self.host, f"rank=$(cat /tmp/rank.3); {script}")

    @contextmanager
    def rank_3(self, before: str, after: str) -> Iterator[None]:
        self.enter(before)
        try:
            yield
        finally:
            self.enter(after)


@pytest.fixture(scope="module")
def job(make_fleet: Callable[..., Fleet]) -> Iterator[SlurmRanks]:
    site = Site(make_fleet, 2, name="att", subnet="10.76.0.0/16")
    try:
        site.start_slurm("MinJobAge=60\n")
        script = site.folder / "job.sh"
        script.write_text(f"#!/bin/sh\nsrun --ntasks-per-node=2 python3 -c {shlex.quote(RANK)}\n")
        number = site.run("sbatch", "--parsable", "-N2", "-n4", "--ntasks-per-node=2", str(script))
        site.wait(number, re.compile(r"\bJobState=RUNNING\b"))
        for host, ranks in zip(site.hosts, ("0 1", "2 3"), strict=True):
            present = " && ".join(f"test -s /tmp/rank.{rank}" for rank in ranks.split())
            site.fleet.enter(host, f"for n in $(seq 300); do {present} && exit 0; sleep 0.1; done; exit 1")
        yield SlurmRanks(site, number)
    finally:
        site.end()


def test_ranks_that_all_wait_are_undecided(job: SlurmRanks) -> None:
    code, report, _ = job.attach()
    assert (code, report["smoke"]["hosts"]) == (12, [{"host": host, "ranks": 2} for host in job.site.hosts])
    assert all("stacks" in entry["reason"] for outcome in report["outcomes"] for entry in outcome["unknown"])


def test_a_rank_that_is_stopped(job: SlurmRanks) -> None:
    with job.rank_3("kill -STOP $rank", "kill -CONT $rank"):
        check, ranks, hosts, text = job.finding()
    assert (check, ranks, hosts) == ("smoke-rank-stopped", [3], [job.host])
    assert "kill -CONT" in text


def test_a_rank_in_an_uninterruptible_wait_of_the_kernel(job: SlurmRanks) -> None:
    held = "kill -USR1 $rank; until grep -q '^State:.D' /proc/$rank/status; do sleep 0.1; done"
    with job.rank_3(held, ": >/tmp/held"):
        check, ranks, hosts, text = job.finding()
    assert (check, ranks, hosts) == ("smoke-rank-blocked", [3], [job.host])
    assert "uninterruptible wait of the kernel" in text


def test_ranks_of_another_job_on_the_same_hosts_are_not_those_of_this_one(job: SlurmRanks) -> None:
    """Its own rank is stopped, and the other job asks for itself; then it has ended."""
    site = job.site
    script = site.folder / "other.sh"
    script.write_text(
        f"#!/bin/sh\nsrun --ntasks-per-node=1 python3 -c {shlex.quote(RANK.replace('rank.', 'other.'))}\n"
    )
    number = site.run("sbatch", "--parsable", "-N2", "-n2", str(script))
    site.wait(number, re.compile(r"\bJobState=RUNNING\b"))
    for host, rank in zip(site.hosts, "01", strict=True):
        site.fleet.enter(host, f"for n in $(seq 300); do test -s /tmp/other.{rank} && exit 0; sleep 0.1; done; exit 1")
    other = SlurmRanks(site, number)
    with job.rank_3("kill -STOP $rank", "kill -CONT $rank"):
        code, report, _ = other.attach()
        assert (code, [entry["ranks"] for entry in report["smoke"]["hosts"]]) == (12, [1, 1])
        assert job.finding()[1] == [3]
        site.run("scancel", number)
        site.wait(number)
        code, report, errors = other.attach()
        assert (code, report) == (78, {}) and "it has ended (CANCELLED)" in errors


def test_a_rank_that_its_control_group_freezes(job: SlurmRanks) -> None:
    """From within the host, whose /sys/fs/cgroup may not show that group."""
    group = "/sys/fs/cgroup/freezer/doctor-test-attach"
    pid = next(pid for pid in global_pids("SLURM_PROCID=3", f"SLURM_JOB_ID={job.number}"))
    os.makedirs(group, exist_ok=True)
    try:
        write(f"{group}/cgroup.procs", str(pid))
        write(f"{group}/freezer.state", "FROZEN")
        check, ranks, hosts, text = job.finding()
    finally:
        write(f"{group}/freezer.state", "THAWED")
        write("/sys/fs/cgroup/freezer/cgroup.procs", str(pid))
        os.rmdir(group)
    assert (check, ranks, hosts) == ("smoke-rank-stopped", [3], [job.host])
    assert "frozen" in text


SERVER = """
import socket
server = socket.create_server(("0.0.0.0", 4711))
open("/tmp/listens", "w").close()
server.accept()[0].recv(1)
"""


def undecided(job: SlurmRanks) -> str:
    code, report, errors = job.attach()
    assert code == 12 and not any(outcome["findings"] for outcome in report["outcomes"]), (report, errors)
    return " ".join(entry["reason"] for outcome in report["outcomes"] for entry in outcome["unknown"])


def test_a_server_on_the_other_host_may_work_for_a_rank(job: SlurmRanks) -> None:
    fleet, first = job.site.fleet, job.site.hosts[0]
    fleet.enter(first, f"python3 -c {shlex.quote(SERVER)} >/dev/null 2>&1 & echo $! >/tmp/server.pid")
    fleet.enter(first, "until test -e /tmp/listens; do sleep 0.1; done")
    asks = f"echo {fleet.addresses[first]} 4711 >/tmp/server; kill -USR2 $rank"
    try:
        with job.rank_3(asks, "true"):
            text = undecided(job)
    finally:
        fleet.enter(first, "kill $(cat /tmp/server.pid)")
    assert f"{fleet.addresses[first]}:4711" in text and "look there" in text


@contextmanager
def grouped(**groups: str) -> Iterator[None]:
    """Each Python process with this variable is in a control group of its own, as with Slurm's cgroup plugin."""
    root, moved = "/sys/fs/cgroup/freezer/doctor-test-groups", []
    try:
        for variable, group in groups.items():
            os.makedirs(f"{root}/{group}", exist_ok=True)
            for pid in global_pids(variable.replace("__", "=")):
                write(f"{root}/{group}/cgroup.procs", str(pid))
                moved.append(pid)
        yield
    finally:
        for pid in moved:
            with contextlib.suppress(OSError):
                write("/sys/fs/cgroup/freezer/cgroup.procs", str(pid))
        for folder, _, _ in os.walk(root, topdown=False):
            os.rmdir(folder)


@pytest.mark.parametrize("step", [True, False], ids=["of the job", "of nobody"])
def test_who_computes_in_another_step_works_for_a_rank_that_looks_for_a_file(job: SlurmRanks, step: bool) -> None:
    """Each has a session, a working folder and, with Slurm's groups, a control group of its own."""
    program = "import os; os.chdir('/'); open('/tmp/helper', 'w').write(str(os.getpid()))\nwhile True: pass"
    line = f"python3 -c {shlex.quote(program)}"
    if step:
        line = f"env HELPER=1 srun --jobid={job.number} --overlap -N1 -n1 -w {job.host} {line}"
        job.site.run("sh", "-c", f"{line} >/dev/null 2>&1 &")
    else:
        job.enter(f"cd /; env -i HELPER=1 PATH=$PATH setsid {line} >/dev/null 2>&1 &")
    job.enter("until test -s /tmp/helper; do sleep 0.1; done")
    group = f"slurm/uid_0/job_{job.number}/step_{{}}"
    groups = {"SLURM_PROCID__3": group.format("0/task_3"), "HELPER__1": group.format("1/task_0") if step else "ssh"}
    ends = "kill $(cat /tmp/helper); touch /tmp/score; sleep 1; rm /tmp/score /tmp/helper"
    with grouped(**groups), job.rank_3("kill -HUP $rank", ends):
        sentence = "works meanwhile" if step else "It looks again and again for something that may come yet"
        assert sentence in undecided(job)


def test_ranks_of_another_user_are_not_said_to_be_absent(job: SlurmRanks) -> None:
    code, _, errors = job.attach("--within", NOBODY)
    assert code == 78
    assert "Python processes of root may not be read, and may be ranks" in errors and errors.count("\n") == 1


def test_a_rank_that_has_gone_has_left(job: SlurmRanks) -> None:
    """The last of these tests. srun starts no other, and the four are not all on one host."""
    job.enter("kill -KILL $rank")
    code, report, _ = job.attach()
    findings = [finding for outcome in report["outcomes"] for finding in outcome["findings"]]
    assert (code, findings) == (12, [])
    assert any("3 of 4 ranks were seen" in note for note in report["smoke"]["notes"])


def global_pids(*variables: str) -> Iterator[int]:
    """The Python processes with these variables, by their numbers on this machine."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                entries = file.read().split(b"\0")
            is_python = "python" in os.readlink(f"/proc/{name}/exe")
        except OSError:
            continue
        if is_python and all(variable.encode() in entries for variable in variables):
            yield int(name)


def write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)

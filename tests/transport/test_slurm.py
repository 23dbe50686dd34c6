"""srun as the way to the hosts, on a real Slurm: the same report as over SSH, and every trouble told by host."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from doctor.transport import TransportError
from doctor.transport.launcher.launcher_transport import LauncherTransport
from doctor.transport.launcher.slurm_steps import Slurm
from tests.hosts.fleet import INSIDE, Fleet
from tests.hosts.slurm import Cluster, needs_slurm
from tests.smoke.interpreter import visible_folders
from tests.transport.conftest import enter_network
from tests.transport.test_talk import Listener

pytestmark = [
    pytest.mark.hosts,
    needs_slurm,
]
ROOT = Path(__file__).resolve().parents[2]
FOREVER = "sleep 4567"


@pytest.fixture(scope="module")
def fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    return make_fleet(4, {"*": {"shows": visible_folders()}}, name="car", subnet="10.81.0.0/16", shm="4g")


@pytest.fixture(scope="module")
def cluster(fleet: Fleet) -> Iterator[Cluster]:
    up = Cluster(fleet)
    yield up
    up.end()


@pytest.fixture(scope="module")
def job(cluster: Cluster) -> dict[str, str]:
    """What a command in the job's script finds in its environment."""
    return {**INSIDE, **cluster.allocate()}


@pytest.fixture
def carry(fleet: Fleet, job: dict[str, str]) -> Iterator[Callable[..., LauncherTransport]]:
    """Opens transports in the network of the controller; what they started is gone when they are closed."""
    opened: list[LauncherTransport] = []

    def open_(patience: float | None = None) -> LauncherTransport:
        opened.append(LauncherTransport(Slurm(job), fleet.hosts, patience, 1 << 20))
        return opened[-1]

    with open(f"/proc/{os.getpid()}/ns/net") as stream:
        enter_network(f"/run/netns/{fleet.hub}")
        try:
            yield open_
        finally:
            for launcher_transport in opened:
                launcher_transport.close()
            enter_network(f"/proc/self/fd/{stream.fileno()}")
    assert leftovers(fleet) == ""


def leftovers(fleet: Fleet, message: str = f"{FOREVER[:-1]}[7]|zlib.decompres[s]") -> str:
    """What of us still runs on the hosts, once it has had its time to end."""
    script = f"for i in $(seq 100); do pgrep -f '{message}' >/dev/null || exit 0; sleep .05; done; pgrep -f '{message}'"
    return "".join(str(fleet.enter(host, script, check=False).stdout) for host in fleet.hosts)


def doctor(fleet: Fleet, job: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "doctor", *arguments]
    env = {**job, "PYTHONPATH": str(ROOT), "DOCTOR_HISTORY": "off"}  # a later run tells since when
    return fleet.run(argv, env=env, cwd=ROOT, timeout=100)


def judged(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """A report without what differs between any two runs."""
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return {name: value for name, value in report.items() if name not in ("seconds", "started", "source")}


@pytest.mark.every
def test_the_report_is_the_same_as_over_ssh(fleet: Fleet, job: dict[str, str]) -> None:
    """With a fault on one host. The job itself names the hosts."""
    fleet.enter(fleet.hosts[1], "sysctl -qw net.core.somaxconn=64")
    done = doctor(fleet, job, "check", "--transport", "slurm", "--json")
    report = judged(done)
    assert report == judged(doctor(fleet, job, "check", "-F", str(fleet.ssh_config), "--json"))
    assert "4 hosts from SLURM_JOB_NODELIST" in done.stdout
    (finding,) = next(outcome for outcome in report["outcomes"] if outcome["check"] == "listen-queue-short")["findings"]
    assert finding["hosts"] == [fleet.hosts[1]]
    assert leftovers(fleet) == ""


def test_ranks_train(fleet: Fleet, job: dict[str, str]) -> None:
    pytest.importorskip("torch")
    arguments = ["--python", sys.executable, "--ranks-per-host", "1", "--steps", "1", "--layout", "dp=2", "--json"]
    done = doctor(fleet, job, "smoke", ",".join(fleet.hosts[:2]), "--transport", "slurm", *arguments)
    smoke = json.loads(done.stdout)["smoke"]
    assert (smoke["ended"], [host["ranks"] for host in smoke["hosts"]]) == ("complete", [1, 1])
    assert done.returncode == 0


def test_each_host_answers_for_itself(fleet: Fleet, carry: Callable[..., LauncherTransport]) -> None:
    transport = carry()
    with ThreadPoolExecutor(4) as pool:
        results = list(
            pool.map(
                lambda host: transport.run(host, "hostname; head -c 70000 | wc -c", b"x" * 70_000, 20), fleet.hosts
            )
        )
    assert [result.out.split() for result in results] == [[host.encode(), b"70000"] for host in fleet.hosts]
    assert transport.warnings == []


def test_a_host_that_floods_holds_up_no_other(fleet: Fleet, carry: Callable[..., LauncherTransport]) -> None:
    transport = carry()
    talk = transport.open_session(fleet.hosts[0], "exec cat /dev/urandom")
    with ThreadPoolExecutor(2) as pool:
        flood = pool.submit(transport.run, fleet.hosts[1], "exec cat /dev/urandom", b"", 30)
        assert transport.run(fleet.hosts[2], "echo fine", b"", 10).out == b"fine\n"
        with pytest.raises(TransportError) as stop:
            flood.result(20)
    assert (stop.value.kind, stop.value.text) == ("flood", "it printed more than 1 MiB, and was closed")
    talk.close(0.1)


def test_srun_that_is_killed_is_started_again(
    fleet: Fleet, carry: Callable[..., LauncherTransport], job: dict[str, str]
) -> None:
    """What was going on is lost, and nothing of it stays; a check that was only reading is asked once more."""
    transport = carry()
    talk = transport.open_session(fleet.hosts[0], f"echo on; exec {FOREVER}")
    listener = Listener(talk)
    assert listener.line() == b"on"
    kill_srun()
    listener.rest()
    assert listener.error is not None
    assert (listener.error.kind, listener.error.text) == ("lost", "srun, which carried its commands, ended: signal 9")
    assert leftovers(fleet, f"{FOREVER[:-1]}[7]") == ""
    assert transport.run(fleet.hosts[0], "echo again", b"", 10).out == b"again\n"


def kill_srun() -> None:
    """Ours: the only one whose parent is this process."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            mine = (folder / "stat").read_text().rpartition(")")[2].split()[1] == str(os.getpid())
            if mine and (folder / "comm").read_text() == "srun\n":
                os.kill(int(folder.name), signal.SIGKILL)
        except OSError:
            continue


def test_nothing_stays_of_a_doctor_that_is_killed(fleet: Fleet, job: dict[str, str]) -> None:
    script = (
        "import os, signal; from doctor.transport.launcher.launcher_transport import LauncherTransport\n"
        "from doctor.transport.launcher.slurm_steps import Slurm\n"
        f"transport = LauncherTransport(Slurm(), {fleet.hosts!r})\n"
        f"talk = transport.open_session({fleet.hosts[2]!r}, 'echo on; exec {FOREVER}')\n"
        "print(next(iter(talk)), flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = fleet.run([sys.executable, "-c", script], env={**job, "PYTHONPATH": str(ROOT)})
    assert (done.stdout, done.returncode) == ("b'on'\n", -signal.SIGKILL)
    assert leftovers(fleet) == ""


@pytest.mark.parametrize(
    ("hosts", "kind", "message"),
    [
        (["nosuch"], "refused", "Requested node configuration is not available"),
        (["nosuch", "car0001"], "refused", "Requested node configuration is not available"),
    ],
)
def test_a_host_that_the_job_has_not_is_told_alone(
    fleet: Fleet, carry: Callable[..., LauncherTransport], hosts: list[str], kind: str, message: str
) -> None:
    transport = carry()
    transport._hosts = tuple(hosts)
    with pytest.raises(TransportError) as stop:
        transport.run("nosuch", "true", b"", 10)
    assert stop.value.kind == kind
    assert message in stop.value.text
    for host in hosts[1:]:
        assert transport.run(host, "hostname", b"", 10).out == host.encode() + b"\n"


def test_a_job_that_is_over_is_said_once(
    fleet: Fleet, carry: Callable[..., LauncherTransport], job: dict[str, str]
) -> None:
    transport = carry()
    transport._launcher = Slurm({**job, "SLURM_JOB_ID": "999999"})
    with pytest.raises(TransportError) as stop:
        transport.run(fleet.hosts[0], "true", b"", 10)
    assert "Invalid job id" in stop.value.text
    assert len(transport._all_steps) == 1


def test_hosts_whose_slurmd_hangs_or_is_dead_hold_up_no_other(
    fleet: Fleet, cluster: Cluster, carry: Callable[..., LauncherTransport]
) -> None:
    good, (hangs, dead) = fleet.hosts[:2], fleet.hosts[2:]
    cluster.signal(hangs, "STOP")
    cluster.signal(dead, "KILL")
    try:
        threads = set(threading.enumerate())  # those of earlier tests in this process end when they will
        transport, began = carry(3.0), time.monotonic()
        with ThreadPoolExecutor(4) as pool:
            late = [pool.submit(transport.run, host, "hostname", b"", 5) for host in (hangs, dead)]
            for host, result in zip(good, pool.map(lambda h: transport.run(h, "hostname", b"", 10), good), strict=True):
                assert result.out == host.encode() + b"\n"
            assert time.monotonic() - began < 6
            for entry in late:
                stop = entry.exception(40)
                assert isinstance(stop, TransportError)
                assert (stop.kind, stop.text) == ("dropped", "srun had no answer from it within 3 s")
        assert transport.warnings == ["srun was started again: 2 hosts delayed the rest"]
        assert len(set(threading.enumerate()) - threads) < 20
    finally:
        cluster.signal(hangs, "CONT")
        cluster.start_slurmd(dead)


def test_a_node_that_died_before_slurmctld_noticed_is_named(
    fleet: Fleet, cluster: Cluster, carry: Callable[..., LauncherTransport]
) -> None:
    """srun itself says that the launch failed on it, and ends with a status that means nothing."""
    good, dead = fleet.hosts[:3], fleet.hosts[3]
    cluster.signal(dead, "KILL")
    try:
        transport = carry()
        with ThreadPoolExecutor(4) as pool:
            late = pool.submit(transport.run, dead, "hostname", b"", 5)
            results = list(pool.map(lambda host: transport.run(host, "hostname", b"", 30), good))
            stop = late.exception(60)
        assert [result.out for result in results] == [host.encode() + b"\n" for host in good]
        assert isinstance(stop, TransportError)
        assert stop.kind == "dropped"
    finally:
        cluster.start_slurmd(dead)

"""mpirun as the way to the hosts, by a real Open MPI: the same report as over SSH, and every trouble told by host."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from doctor.transport import TransportError
from doctor.transport.launcher.launcher_transport import LauncherTransport
from doctor.transport.launcher.mpi import Mpi, own_hosts, require_supported
from tests.hosts.fleet import INSIDE, Fleet
from tests.hosts.slurm import needs_mpirun
from tests.jobs.site import Site
from tests.transport.conftest import enter_network
from tests.transport.test_talk import Listener

pytestmark = [pytest.mark.hosts, needs_mpirun]
ROOT = Path(__file__).resolve().parents[2]
FOREVER = "sleep 4568"


@pytest.fixture(scope="module")
def fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    return make_fleet(4, {"mpi0004": {"fault": "refuse"}}, name="mpi", subnet="10.82.0.0/16", shm="4g")


@pytest.fixture(scope="module")
def environ(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """With the site's way to start mpirun's daemons, as users configure it."""
    hosts = "".join(f"Host {name}\n HostName {address}\n" for name, address in fleet.addresses.items())
    config = tmp_path_factory.mktemp("mpi") / "ssh_config"
    config.write_text(hosts + fleet.ssh_config.read_text())
    return {**INSIDE, "OMPI_MCA_plm_rsh_agent": f"ssh -F {config}"}


@pytest.fixture
def carry(fleet: Fleet, environ: dict[str, str]) -> Iterator[Callable[..., LauncherTransport]]:
    opened: list[LauncherTransport] = []

    def open_(*hosts: str) -> LauncherTransport:
        opened.append(LauncherTransport(Mpi(environ), hosts, None, 1 << 20))
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


def leftovers(fleet: Fleet) -> str:
    """What of us still runs on the hosts, once it has had its time to end."""
    message = f"{FOREVER[:-1]}[8]|zlib.decompres[s]|orte[d]"
    script = f"for i in $(seq 100); do pgrep -f '{message}' >/dev/null || exit 0; sleep .05; done; pgrep -f '{message}'"
    return "".join(str(fleet.enter(host, script, check=False).stdout) for host in fleet.hosts)


def report(fleet: Fleet, environ: dict[str, str], *arguments: str) -> dict[str, Any]:
    """Without what differs between any two runs."""
    argv = [sys.executable, "-m", "doctor", "check", ",".join(fleet.hosts[:3]), "--json", *arguments]
    done: subprocess.CompletedProcess[str] = fleet.run(
        argv, env={**environ, "PYTHONPATH": str(ROOT), "DOCTOR_HISTORY": "off"}, cwd=ROOT
    )
    assert done.stdout, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return {name: value for name, value in document.items() if name not in ("seconds", "started")}


def test_the_report_is_the_same_as_over_ssh(fleet: Fleet, environ: dict[str, str]) -> None:
    """With a fault on one host."""
    fleet.enter(fleet.hosts[1], "sysctl -qw net.core.somaxconn=64")
    carried = report(fleet, environ, "--transport", "mpi")
    assert carried == report(fleet, environ, "-F", str(fleet.ssh_config))
    (finding,) = next(outcome for outcome in carried["outcomes"] if outcome["check"] == "listen-queue-short")[
        "findings"
    ]
    assert finding["hosts"] == [fleet.hosts[1]]
    assert leftovers(fleet) == ""


def test_a_host_that_is_not_reached_keeps_no_other_from_its_answer(
    fleet: Fleet, carry: Callable[..., LauncherTransport]
) -> None:
    """mpirun itself gives up all hosts when it does not reach one."""
    transport = carry(*fleet.hosts)
    *good, bad = fleet.hosts
    with ThreadPoolExecutor(4) as pool:
        late = pool.submit(transport.run, bad, "hostname", b"", 10)
        results = list(pool.map(lambda host: transport.run(host, "hostname; head -c 5", b"12345", 20), good))
        stop = late.exception(30)
    assert [result.out.split()[0] for result in results] == [host.encode() for host in good]
    assert isinstance(stop, TransportError)
    assert stop.kind == "refused"
    assert "Connection refused" in stop.text


def test_mpirun_that_is_killed_leaves_nothing(fleet: Fleet, carry: Callable[..., LauncherTransport]) -> None:
    transport = carry(*fleet.hosts[:2])
    talk = transport.open_session(fleet.hosts[1], f"echo on; exec {FOREVER}")
    listener = Listener(talk)
    assert listener.line() == b"on"
    kill_mpirun()
    listener.rest()
    assert listener.error is not None
    assert listener.error.kind == "lost"


def kill_mpirun() -> None:
    """Ours: the only one whose parent is this process."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            mine = (folder / "stat").read_text().rpartition(")")[2].split()[1] == str(os.getpid())
            if mine and (folder / "comm").read_text() in ("mpirun\n", "orterun\n", "mpirun.openmpi\n"):
                os.kill(int(folder.name), signal.SIGKILL)
        except OSError:
            continue


@pytest.fixture(scope="module")
def site(make_fleet: Callable[..., Fleet]) -> Iterator[Site]:
    """Hosts on which doctor and mpirun run as they do in a job's script."""
    created_site = Site(make_fleet, 3, name="mpin", subnet="10.98.0.0/16")
    try:
        yield created_site
    finally:
        created_site.end()


def test_mpirun_on_one_of_the_hosts_reaches_itself_and_the_others(site: Site) -> None:
    """In a job, mpirun's own host is one of the job's; it gets no stdin there in a launch for all."""
    site.fleet.enter(site.hosts[0], "sysctl -qw net.core.somaxconn=64")
    command = f"doctor check {','.join(site.hosts)} --transport mpi -s listen-queue-short --json"
    done = site.enter(site.hosts[0], command, {"OMPI_MCA_plm_rsh_agent": "ssh"})
    assert done.stdout, done.stderr
    outcomes = {outcome["check"]: outcome for outcome in json.loads(done.stdout)["outcomes"]}
    assert outcomes["host-unreachable"]["findings"] == []
    (finding,) = outcomes["listen-queue-short"]["findings"]
    assert finding["hosts"] == [site.hosts[0]]
    assert json.loads(done.stdout)["hosts"] == list(site.hosts)


def test_which_of_the_hosts_is_mpiruns_own() -> None:
    nodename = os.uname().nodename
    assert own_hosts(["192.0.2.1", nodename]) == (nodename,)
    assert own_hosts(["192.0.2.1", "127.0.0.1", "no such host.invalid"]) == ("127.0.0.1",)
    assert Mpi({}).groups(["192.0.2.1", nodename, "192.0.2.2"]) == [(nodename,), ("192.0.2.1", "192.0.2.2")]


@pytest.mark.parametrize(
    ("output", "description"),
    [
        ("mpirun (Open MPI) 5.0.3\n", "Open MPI 5"),
        ("HYDRA build details:\n  Version: 4.0\n", "HYDRA build details:"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.9\n", "Intel(R) MPI Library for Linux* OS, Version 2021.9"),
        ("", "of an unknown kind"),
    ],
)
def test_an_mpirun_that_cannot_carry_is_said_to_be_one(output: str, description: str) -> None:
    with pytest.raises(TransportError) as stop:
        require_supported(output)
    assert (stop.value.kind, stop.value.text) == (
        "unsupported",
        f"mpirun is {description}; expected Open MPI 3 or 4",
    )


def test_open_mpi_3_and_4_are_taken() -> None:
    require_supported("mpirun (Open MPI) 4.1.4\n\nReport bugs to ...\n")
    require_supported("mpirun (Open MPI) 3.1.6\n")

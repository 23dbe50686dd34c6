"""`doctor watch` on several real hosts: one of them leads, and there is one report over all ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.hosts.fleet import INSIDE, Fleet
from tests.hosts.slurm import Cluster, needs_mpirun, needs_slurm
from tests.smoke.interpreter import visible_folders

LIMIT = 280
pytestmark = [pytest.mark.hosts, pytest.mark.timeout(2 * LIMIT)]
ROOT = Path(__file__).resolve().parents[2]
RANK, TRAINING = ROOT / "tests/watch/recorded_rank.py", ROOT / "tests/watch/fleet_program.py"
REPORT, METRICS = "/tmp/watch.json", "/tmp/watch.prom"
WATCH = (sys.executable, "-m", "doctor", "watch", "-q", "-f", f"json={REPORT}")
HANG = ("--patience", "4", "--on-hang", "end")
OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""In the agents' own store, ranks whose agents count other restarts do not find each other."""
CUT = "table inet cut { chain in { type filter hook input priority 0; policy drop; iif lo accept; }; }"


@pytest.fixture(scope="module")
def fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    return make_fleet(3, {"*": {"shows": visible_folders()}}, name="wh", subnet="10.92.0.0/16", shm="256m")


class Host(NamedTuple):
    """What `doctor watch` came to on one host."""

    name: str
    code: int
    stdout: str
    stderr: str
    report: dict[str, Any]

    @property
    def failure(self) -> dict[str, Any]:
        return dict((self.report["smoke"]["failures"] or [{}])[0])

    @property
    def findings(self) -> dict[str, tuple[list[int], list[str]]]:
        """By check that failed: ranks and hosts of its first finding."""
        failed = [outcome for outcome in self.report["outcomes"] if outcome["findings"]]
        firsts = {outcome["check"]: outcome["findings"][0] for outcome in failed}
        return {name: (first["values"]["ranks"], first["hosts"]) for name, first in firsts.items()}


class Job:
    """One command on each host, at the same time."""

    def __init__(self, fleet: Fleet, hosts: Sequence[str], ranks: int) -> None:
        self.fleet, self.hosts, self.ranks = fleet, hosts, ranks

    def environ(self, number: int, **more: str) -> dict[str, str]:
        return {
            **INSIDE,
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "eth0",
            "MASTER_ADDR": self.fleet.addresses[self.hosts[0]],
            "MASTER_PORT": "29500",
            "WORLD_SIZE": str(len(self.hosts) * self.ranks),
            "LOCAL_WORLD_SIZE": str(self.ranks),
            "RANK": str(number * self.ranks),
            "FORK": str(self.ranks),
            "FIRST": str(number * self.ranks),
            **more,
        }

    def start(self, commands: Sequence[Sequence[str]], **more: str) -> list[Future[Host]]:
        """``commands``: one for each host."""
        pool = ThreadPoolExecutor(len(self.hosts))
        futures = [pool.submit(self._run, number, argv, more) for number, argv in enumerate(commands)]
        pool.shutdown(wait=False)
        return futures

    def _run(self, number: int, argv: Sequence[str], more: dict[str, str]) -> Host:
        name, environ = self.hosts[number], self.environ(number, **more)
        done = self.fleet.enter(name, argv, check=False, env=environ, timeout=LIMIT)
        return host_of(self.fleet, name, done)

    def run(self, commands: Sequence[Sequence[str]], **more: str) -> list[Host]:
        return [future.result(LIMIT + 20) for future in self.start(commands, **more)]

    def forked(self, *arguments: object, options: Sequence[str] = HANG, **more: str) -> list[Future[Host]]:
        """A training of torch, whose ranks one process of each host forks."""
        command = [*WATCH, *options, "--", sys.executable, str(TRAINING), *map(str, arguments)]
        return self.start([command] * len(self.hosts), **more)

    def torchrun(
        self, *arguments: object, options: Sequence[str] = HANG, launch: Sequence[str] = (), **more: str
    ) -> list[Host]:
        address = self.fleet.addresses[self.hosts[0]]
        launcher = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={len(self.hosts)}"]
        launcher += [f"--nproc-per-node={self.ranks}", f"--master-addr={address}", "--master-port=29500", *launch]
        program = [str(TRAINING), *map(str, arguments)]
        commands = [
            [*WATCH, *options, "--", *launcher, f"--node-rank={number}", *program] for number in range(len(self.hosts))
        ]
        return self.run(commands, FORK="0", **more)


def host_of(fleet: Fleet, name: str, done: subprocess.CompletedProcess[str]) -> Host:
    text = fleet.enter(name, f"cat {REPORT} 2>/dev/null; rm -f {REPORT}", check=False).stdout
    return Host(name, done.returncode, done.stdout, done.stderr, json.loads(text) if text else {})


def until_marked(fleet: Fleet, host: str) -> None:
    """Until the training has come to the step in which it marks."""
    deadline = time.monotonic() + LIMIT
    while fleet.enter(host, "test -e /tmp/mark", check=False).returncode:
        assert time.monotonic() < deadline
        time.sleep(0.2)


def is_one_report(hosts: Sequence[Host], headline: str) -> None:
    """The first host has the report, and the others say where it is."""
    leader, *others = hosts
    assert leader.report, leader.stderr
    for host in others:
        assert not host.report and f"{headline}; the report is on {leader.name}: {REPORT}" in host.stderr, host.stderr
    assert {host.code for host in hosts} == {10}


def test_a_rank_that_hangs_on_another_host_is_named_in_one_report(fleet: Fleet) -> None:
    one_a_host = Job(fleet, fleet.hosts[:2], 1)
    argv = [*WATCH, "--patience", "1", "--on-hang", "end", "--prometheus", METRICS]
    hosts = one_a_host.run([[*argv, "--", sys.executable, str(RANK), "100", "1", "20"]] * 2)
    is_one_report(hosts, f"smoke-rank-blocked: rank 1 on {fleet.hosts[1]}")
    assert hosts[0].findings == {"smoke-rank-blocked": ([1], [fleet.hosts[1]])}
    stacks = {stack["rank"]: stack["text"] for stack in hosts[0].failure["stacks"]}
    assert sorted(stacks) == [0, 1] and "recorded_rank.py" in stacks[1]
    metrics = fleet.read(fleet.hosts[0], METRICS)
    assert "doctor_watch_fault 1.0" in metrics and "doctor_watch_ranks_seen 2.0" in metrics
    assert f'doctor_watch_rank_step{{host="{fleet.hosts[1]}",rank="1"}} 20.0' in metrics
    assert fleet.enter(fleet.hosts[1], f"test -e {METRICS}", check=False).returncode == 1


@pytest.mark.full
def test_a_host_that_finds_no_leader_reports_for_itself_and_says_so(fleet: Fleet) -> None:
    """On the host with rank 0 nobody watches."""
    one_a_host = Job(fleet, fleet.hosts[:2], 1)
    baseline = [sys.executable, str(RANK), "100", "-1", "-1"]
    _, alone = one_a_host.run([baseline, [*WATCH, "--", "sh", "-c", f"{' '.join(baseline)}; sleep 25"]])
    assert alone.code == 0 and f"{alone.name} reports for itself: MASTER_ADDR=" in alone.stderr
    assert "Nothing is known of rank 0" in alone.stderr
    assert any("reports for itself" in note for note in alone.report["smoke"]["notes"])


@pytest.mark.full
@pytest.mark.torch
class TestTrainings:
    """Real trainings over gloo."""

    def test_a_healthy_training_under_torchrun_has_no_finding_anywhere(self, fleet: Fleet) -> None:
        hosts = Job(fleet, fleet.hosts, 1).torchrun(40)
        assert [host.code for host in hosts] == [0, 0, 0], [host.stderr[-2000:] for host in hosts]
        leader, *others = hosts
        assert not leader.findings and leader.report["smoke"]["ended"] == "complete"
        assert "3 of 3 ranks on 3 hosts, step 40" in leader.stderr
        assert all("no fault was found" in host.stderr for host in hosts) and not any(host.report for host in others)

    def test_a_hang_on_the_third_host_is_named(self, fleet: Fleet) -> None:
        hosts = Job(fleet, fleet.hosts, 1).torchrun(4000, "sleep", 2, 20)
        is_one_report(hosts, f"smoke-rank-blocked: rank 2 on {fleet.hosts[2]}")
        assert hosts[0].failure["waiting_ranks"] == [0, 1]

    @pytest.mark.parametrize("fault", ["kill", "raise"])
    def test_the_rank_that_ends_first_is_named_and_not_those_that_its_launcher_ends(
        self, fleet: Fleet, fault: str
    ) -> None:
        """torchrun then starts all ranks again, and they finish: the fault is reported once."""
        restarts = (
            "--max-restarts=1",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={fleet.addresses[fleet.hosts[0]]}:29400",
        )
        job = Job(fleet, fleet.hosts[:2], 2)
        hosts = job.torchrun(40, fault, 3, 20, launch=(*restarts, "--rdzv-id=job7"), PAUSE="0.05", **OWN_STORE)
        leaders = [host for host in hosts if host.report]
        assert len(leaders) == 1, [host.stderr[-2000:] for host in hosts]
        assert leaders[0].failure["kind"] == "dead" and len(leaders[0].failure["culprit_ranks"]) == 1
        assert {host.code for host in hosts} == {10}
        # Which host gets which ranks is torchrun's matter: the fault is in rank 3, wherever that is.
        assert leaders[0].failure["culprit_ranks"] == [3], f"{leaders[0].failure} {leaders[0].stderr[-6000:]}"

    def test_a_host_that_is_cut_off_is_named_while_the_others_wait_for_it(self, fleet: Fleet) -> None:
        futures = Job(fleet, fleet.hosts[:2], 1).forked(100000, "mark", 1, 20, MARK="/tmp/mark", PAUSE="0.05")
        until_marked(fleet, fleet.hosts[1])
        fleet.nft(fleet.hosts[1], CUT)
        leader = futures[0].result(LIMIT)
        assert leader.code == 10 and leader.findings == {"smoke-host-silent": ([1], [fleet.hosts[1]])}
        fleet.renew(fleet.hosts[1])
        futures[1].result(LIMIT)

    def test_a_rank_that_is_slower_than_those_of_the_other_host_is_named(self, fleet: Fleet) -> None:
        hosts = [
            future.result(LIMIT) for future in Job(fleet, fleet.hosts[:2], 1).forked(50, "slow", 1, 0, PAUSE="0.2")
        ]
        # Where processes wait for a CPU, own work is not what is measured: then nothing may be said, and never another.
        assert hosts[0].findings in ({}, {"smoke-rank-slow": ([1], [fleet.hosts[1]])})
        if not hosts[0].findings and os.getloadavg()[0] > 2 * (os.cpu_count() or 1):
            pytest.skip("nothing was said, on a machine where processes wait for a CPU")
        assert hosts[0].findings
        assert f"smoke-rank-slow: rank 1 on {fleet.hosts[1]}" in hosts[1].stderr or hosts[1].code == 0

    def test_a_rank_that_never_joins_is_named_with_its_host(self, fleet: Fleet) -> None:
        """Its own host sees that it has come to rest, and says so to the one that decides."""
        options = ("--patience", "3", "--exit-on", "fault")
        hosts = Job(fleet, fleet.hosts[:2], 2).torchrun(40, "absent", 3, 0, options=options)
        is_one_report(hosts, f"smoke-rank-never-joined: rank 3 on {fleet.hosts[1]}")


@pytest.fixture(scope="module")
def cluster(fleet: Fleet) -> Iterator[Cluster]:
    up = Cluster(fleet)
    yield up
    up.end()


@pytest.mark.full
@pytest.mark.torch
@needs_slurm
def test_under_srun_the_hosts_find_each_other_by_what_slurm_says(fleet: Fleet, cluster: Cluster) -> None:
    """Three tasks on three hosts."""
    address = fleet.addresses[fleet.hosts[0]]
    script = (
        f"export MASTER_ADDR={address} MASTER_PORT=29500 PYTHONPATH={ROOT} GLOO_SOCKET_IFNAME=eth0 OMP_NUM_THREADS=1"
    )
    watch = f"{' '.join([*WATCH, *HANG])} -- {sys.executable} {TRAINING} 4000 sleep 2 20"
    done = cluster.run("srun", "-N3", "-n3", "--chdir=/tmp", "sh", "-c", f"{script}; exec {watch}", timeout=LIMIT)
    hosts = [host_of(fleet, name, done) for name in fleet.hosts]
    assert [bool(host.report) for host in hosts] == [True, False, False], done.stderr[-3000:]
    assert hosts[0].findings == {"smoke-rank-blocked": ([2], [fleet.hosts[2]])}
    assert done.stderr.count("the report is on") == 2


@pytest.mark.full
@needs_mpirun
def test_under_mpirun_one_process_of_each_host_watches_and_one_host_reports(fleet: Fleet, tmp_path: Path) -> None:
    hostfile = fleet.directory / "mpi-hosts"
    hostfile.write_text("".join(f"{name} slots=2\n" for name in fleet.hosts[:2]))
    address = fleet.addresses[fleet.hosts[0]]
    values = {"MASTER_ADDR": address, "MASTER_PORT": "29500", "PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "eth0"}
    variables = [word for name, value in values.items() for word in ("-x", f"{name}={value}")]
    names = "".join(f"Host {name}\n HostName {place}\n" for name, place in fleet.addresses.items())
    config = tmp_path / "ssh_config"
    config.write_text(names + fleet.ssh_config.read_text())
    agent = f"ssh -F {config}"
    argv = ["mpirun", "--allow-run-as-root", "--hostfile", str(hostfile), "-np", "4", "--mca", "plm_rsh_agent", agent]
    numbers = "RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE"
    argv += [*variables, "--wdir", "/tmp", *WATCH, *HANG, "--", "sh", "-c"]
    argv += [f"{numbers} exec {sys.executable} {RANK} 100 3 20"]
    done = fleet.run(argv, timeout=LIMIT)
    hosts = [host_of(fleet, name, done) for name in fleet.hosts[:2]]
    assert [bool(host.report) for host in hosts] == [True, False], done.stderr[-3000:]
    assert hosts[0].findings == {"smoke-rank-blocked": ([3], [fleet.hosts[1]])}
    assert hosts[0].failure["waiting_ranks"] == [0, 1, 2]

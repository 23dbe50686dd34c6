"""``python -m doctor.smoke`` under real launchers: a healthy run, and jobs that are launched wrongly."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from doctor.environment.job_context import detect
from doctor.smoke.model import Layout, RankPlacement, SmokePlan
from doctor.smoke.rendezvous.link import LeaderListener, Member, job_token, leader_ports
from tests.hosts.slurm import needs_mpirun
from tests.smoke import slurm

pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parents[2]
RUN = (sys.executable, "-m", "doctor.smoke")
SHORT = ("--steps", "2", "--layout", "dp=2", "--json")
LAUNCHERS = ("TORCHELASTIC_", "OMPI_", "PMIX_", "SLURM_", "MS_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "DEVICE_ID")
SPAWN = """
import sys
import torch.multiprocessing
from doctor.cli.smoke_launched import spawned
if __name__ == "__main__":
    torch.multiprocessing.spawn(spawned, (2, sys.argv[1:]), 2)
"""
CPUS = sorted(os.sched_getaffinity(0))
BINDINGS = [
    ("TORCHRUN", "", False),
    (f"taskset -c {CPUS[-1]} TORCHRUN", "", True),
    ("TORCHRUN", "GOMP_CPU_AFFINITY=0-1", True),
    ("MPIRUN", "--bind-to none", False),
    ("MPIRUN", "--bind-to core", False),
    ("MPIRUN", f"--cpu-set {CPUS[-1]} --bind-to core:overload-allowed", True),
]
"""A command, the binding by the launcher or by a variable, and whether the ranks then share a CPU."""


def environment(**values: Any) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith((*LAUNCHERS, "DOCTOR_"))}
    kept |= {"PYTHONPATH": str(ROOT), "DOCTORS_TEST": str(os.getpid())}
    return {**kept, **{name: str(value) for name, value in values.items()}}


def free_port() -> int:
    with socket.create_server(("", 0)) as server:
        return int(server.getsockname()[1])


class Ended(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        assert self.out, self.err
        document: dict[str, Any] = json.loads(self.out)
        return document


JOBS: list[Job] = []


class Job:
    """The processes of one job, each with variables of its own."""

    def __init__(self, ranks: Sequence[dict[str, Any]], *arguments: str) -> None:
        JOBS.append(self)
        self.began = time.monotonic()
        self.processes = [
            subprocess.Popen(
                [*RUN, *(arguments or SHORT)],
                env=environment(**rank),
                cwd="/",
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in ranks
        ]

    def ends(self, timeout: float = 60.0) -> list[Ended]:
        ended = []
        for process in self.processes:
            out, err = process.communicate(timeout=timeout)
            ended.append(Ended(process.returncode, out, err))
        self.seconds = time.monotonic() - self.began
        return ended

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
            with contextlib.suppress(ValueError):  # all was read already
                process.communicate()


def shell(rank: int, world: int, port: int, address: str = "127.0.0.1", **more: Any) -> dict[str, Any]:
    """As a loop in a shell sets them for torch."""
    own_values = {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank, "MASTER_ADDR": address, "MASTER_PORT": port}
    return {**own_values, **more}


def ascend(rank: int, world: int, port: int) -> dict[str, Any]:
    """As a loop in a shell sets them for Ascend."""
    own_values = {"RANK_ID": rank, "RANK_SIZE": world, "DEVICE_ID": rank}
    return {**own_values, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}


def ours() -> set[str]:
    """Processes of this test run's jobs that live: whatever they start has their environment."""
    result = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            marked = f"DOCTORS_TEST={os.getpid()}".encode() in (folder / "environ").read_bytes().split(b"\0")
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if marked and state != "Z":
            result.add((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return result


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    deadline = time.monotonic() + 5
    while (remaining := ours()) and time.monotonic() < deadline:
        time.sleep(0.02)
    for job in JOBS:
        job.kill()
    JOBS.clear()
    assert not remaining


def healthy(report: dict[str, Any], launcher: str, world: int = 2) -> None:
    assert report["exit"] == 0
    assert report["source"] == f"{launcher}, {world} ranks"
    assert report["smoke"]["ended"] == "complete"


def launched(*argv: str, timeout: float = 110.0, **values: Any) -> Ended:
    done = subprocess.run(
        argv, env=environment(**values), cwd="/", capture_output=True, text=True, timeout=timeout, check=False
    )
    return Ended(done.returncode, done.stdout, done.stderr)


class TestHealthy:
    @pytest.mark.sample
    @pytest.mark.parametrize("style", [shell, pytest.param(ascend, marks=pytest.mark.full)])
    def test_a_loop_in_a_shell(self, style: Any) -> None:
        port = free_port()
        first, second = Job([style(rank, 2, port) for rank in range(2)]).ends(100)
        healthy(first.report, "environment")
        assert (first.code, second.code, second.out, second.err) == (0, 0, "", "")

    @pytest.mark.full
    def test_spawn(self, tmp_path: Path) -> None:
        script = tmp_path / "script.py"
        script.write_text(SPAWN)
        done = launched(sys.executable, str(script), *SHORT)
        assert done.code == 0, done.err
        healthy(done.report, "spawn")

    @pytest.mark.sample
    def test_torchrun(self) -> None:
        argv = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "doctor.smoke", *SHORT)
        done = launched(*argv, OMP_NUM_THREADS="1")
        assert done.code == 0, done.err
        healthy(done.report, "torchrun")

    @pytest.mark.full
    def test_torch_distributed_launch(self) -> None:
        """It puts ``--local-rank`` behind the program's name."""
        port = str(free_port())
        argv = ("-m", "torch.distributed.launch", "--nproc-per-node", "2", "--master-port", port, "-m", "doctor.smoke")
        done = launched(sys.executable, *argv, *SHORT, OMP_NUM_THREADS="1")
        assert done.code == 0, done.err
        healthy(done.report, "torchrun")

    @pytest.mark.sample
    @needs_mpirun
    def test_mpirun(self) -> None:
        mpirun = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2")
        done = launched(*mpirun, *RUN, *SHORT)
        assert done.code == 0, done.err
        healthy(done.report, "mpirun")

    @pytest.mark.full
    @pytest.mark.skipif(len(CPUS) < 2, reason="this machine has no second CPU")
    @pytest.mark.parametrize(("before", "binding", "sharing"), BINDINGS, ids=str)
    def test_ranks_and_the_cpus_that_a_launcher_binds_them_to(self, before: str, binding: str, sharing: bool) -> None:
        torchrun = f"{sys.executable} -m torch.distributed.run --nproc-per-node 2 -m doctor.smoke"
        mpirun = f"mpirun --allow-run-as-root --oversubscribe -np 2 BINDING {' '.join(RUN)}"
        command = before.replace("TORCHRUN", torchrun).replace("MPIRUN", mpirun).replace("BINDING", binding)
        variables = dict([binding.split("=")]) if binding.startswith("GOMP") else {}
        done = launched(*command.split(), *SHORT, **variables)
        assert done.code == 0, done.err
        (outcome,) = [entry for entry in done.report["outcomes"] if entry["check"] == "smoke-ranks-share-cpu"]
        assert [finding["values"]["ranks"] for finding in outcome["findings"]] == [[0, 1]] * sharing
        assert not outcome["unknown"]

    @pytest.mark.sample
    def test_msrun_style_variables_with_a_scheduler(self) -> None:
        """The scheduler runs the same command, is told RANK_ID=0 too, and leads without being a rank."""
        shared = {"MS_WORKER_NUM": 2, "MS_SCHED_HOST": "127.0.0.1", "MS_SCHED_PORT": free_port(), "RANK_SIZE": 2}
        workers = [
            {**shared, "MS_ROLE": "MS_WORKER", "MS_NODE_ID": rank, "RANK_ID": rank, "DEVICE_ID": rank}
            for rank in range(2)
        ]
        scheduler = {**shared, "MS_ROLE": "MS_SCHED", "MS_NODE_ID": "sched", "RANK_ID": 0}
        ended = Job([scheduler, *workers]).ends(100)
        healthy(ended[0].report, "msrun")
        assert [(row.code, row.err) for row in ended] == [(0, "")] * 3
        assert [row.out for row in ended[1:]] == ["", ""]

    def test_without_a_launcher_it_is_doctor_smoke(self) -> None:
        done = launched(*RUN, "--help")
        assert done.code == 0
        assert "doctor smoke" in done.out


needs_slurm = pytest.mark.skipif(
    bool(slurm.ABSENT_PROGRAMS) or os.geteuid() != 0,
    reason=f"needs root, and {', '.join(slurm.ABSENT_PROGRAMS)} (Debian packages: slurm-wlm, munge)",
)


@pytest.fixture(scope="class")
def cluster() -> Iterator[dict[str, str]]:
    """The variables that a client of a Slurm of our own needs."""
    with tempfile.TemporaryDirectory(prefix="doctor-slurm-") as folder:
        created_slurm = slurm.Slurm(Path(folder))
        try:
            yield created_slurm.environ
        finally:
            created_slurm.end()


@needs_slurm
class TestSlurm:
    def test_srun_on_two_nodes_whose_names_do_not_resolve(self, cluster: dict[str, str]) -> None:
        done = launched("srun", "-N2", "-n2", *RUN, *SHORT, **cluster)
        assert done.code == 0, done.err
        healthy(done.report, "srun")
        assert [host["host"] for host in done.report["smoke"]["hosts"]] == ["n0", "n1"]

    @pytest.mark.full
    def test_torchrun_inside_of_srun(self, cluster: dict[str, str]) -> None:
        argv = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "doctor.smoke", *SHORT)
        done = launched("srun", "-N1", "-n1", sys.executable, *argv, OMP_NUM_THREADS="1", **cluster)
        assert done.code == 0, done.err
        healthy(done.report, "torchrun")
        assert "started by torchrun inside of srun: the ranks are those of torchrun" in done.report["smoke"]["notes"]

    def test_a_task_that_is_led_elsewhere(self, cluster: dict[str, str]) -> None:
        """A wrapper that sets MASTER_ADDR for one task alone."""
        wrapper = 'test "$SLURM_PROCID" = 1 && export MASTER_ADDR=nosuch.invalid; exec "$@"'
        done = launched("srun", "-N2", "-n3", "sh", "-c", wrapper, "sh", *RUN, *SHORT, **cluster)
        assert done.code == 10
        results = cause(json.loads(done.out))
        assert (results["culprit_ranks"], results["text"][:42]) == ([1], "MASTER_ADDR=nosuch.invalid does not resolv")


def cause(report: dict[str, Any]) -> dict[str, Any]:
    """The trouble that the report names."""
    failure: dict[str, Any] = report["smoke"]["failures"][0]
    assert failure["kind"] == "never-joined"
    return failure


def refused(job: Job, leader: int = 0) -> tuple[dict[str, Any], list[Ended]]:
    """The trouble, and the ends of all processes, which agree that the run has failed."""
    ended = job.ends()
    report = ended[leader].report
    assert {row.code for row in ended} == {report["exit"]}
    assert report["exit"] == 10
    assert job.seconds < 60
    return cause(report), ended


class TestLaunchedWrongly:
    def test_another_master_addr_on_one_rank(self) -> None:
        """The rank itself says it on stderr; rank 0 hears of it by way of a sound rank of the same host."""
        port = free_port()
        job = Job([shell(0, 3, port), shell(1, 3, port), shell(2, 3, port, "nosuch.invalid")])
        results, ended = refused(job)
        assert results["culprit_ranks"] == [2]
        assert results["text"].startswith("MASTER_ADDR=nosuch.invalid does not resolve: ")
        assert ended[1].err == ""

    def test_another_world_size_on_one_rank(self) -> None:
        port = free_port()
        results, _ = refused(Job([shell(0, 3, port), shell(1, 3, port), shell(2, 4, port)]))
        assert results["culprit_ranks"] == [2]
        assert results["text"] == "the world size differs: rank 2 of a world of 4; ranks 0-1 of a world of 3"

    def test_another_world_size_on_rank_0(self) -> None:
        port = free_port()
        results, _ = refused(Job([shell(0, 2, port), shell(1, 3, port), shell(2, 3, port)]))
        assert results["culprit_ranks"] == [0]

    def test_one_rank_twice(self) -> None:
        port = free_port()
        job = Job([shell(0, 3, port), shell(1, 3, port), shell(1, 3, port)])
        results, _ = refused(job)
        first, second = sorted(process.pid for process in job.processes[1:])
        host = os.uname().nodename
        assert results["culprit_ranks"] == [1]
        twins = f"process {first} on {host} and process {second} on {host}"
        assert results["text"] == f"rank 1 exists 2 times: {twins}; no process is rank 2"

    def test_a_rank_that_is_no_number(self) -> None:
        port = free_port()
        results, ended = refused(Job([shell(0, 2, port), shell(1, 2, port, RANK="one")]))
        assert results["culprit_ranks"] == [1]
        assert "RANK='one', expected a whole number from 0 to 1" in results["text"]
        assert ended[1].err == "doctor: RANK='one', expected a whole number from 0 to 1\n"

    def test_master_port_is_taken(self) -> None:
        with socket.create_server(("", 0)) as server:
            port = int(server.getsockname()[1])
            results, _ = refused(Job([shell(rank, 2, port) for rank in range(2)]))
        assert results["culprit_ranks"] == [0]
        assert f"port {port}: Address already in use" in results["text"]

    def test_master_addr_that_leads_rank_0_elsewhere(self) -> None:
        port = free_port()
        results, _ = refused(Job([shell(0, 2, port, "nosuch.invalid"), shell(1, 2, port)]))
        assert results["culprit_ranks"] == [0]
        assert results["text"].startswith("MASTER_ADDR=nosuch.invalid does not resolve: ")

    def test_a_layout_that_does_not_fit_is_a_mistake_of_usage_everywhere(self) -> None:
        port = free_port()
        ended = Job([shell(rank, 2, port) for rank in range(2)], "--layout", "dp=3").ends()
        assert [row.code for row in ended] == [2, 2]
        assert "expected 2, the number of ranks" in ended[0].err
        assert ended[1].err == ""

    def test_a_rank_that_never_comes(self) -> None:
        port = free_port()
        results, _ = refused(Job([shell(rank, 3, port) for rank in (0, 2)], "--budget", "3", "--json"))
        assert (results["culprit_ranks"], results["certainty"]) == ([1], "timeout")
        assert results["text"].startswith("no connection within 3 s: not started, directed elsewhere by MASTER_ADDR")

    def test_no_port_is_left_for_the_others_to_come_to(self) -> None:
        port = free_port()
        context = detect({name: str(value) for name, value in shell(0, 2, port).items()}, as_rank=True)
        assert context.launcher
        with contextlib.ExitStack() as stack:
            for number in leader_ports(job_token(context, os.geteuid()), port):
                stack.enter_context(socket.create_server(("", number)))
            first, second = Job([shell(rank, 2, port) for rank in range(2)], "--budget", "2").ends()
        assert (first.code, first.out, first.err.count("\n")) == (78, "", 1)
        assert "rank 0 cannot listen on any of the rendezvous ports" in first.err
        assert second.code == 10
        assert "what listens there does not belong to this job" in second.err


class TestTrust:
    def test_a_process_runs_its_own_rank_and_its_own_programs_alone(self) -> None:
        """Whoever knows the token can lead; what it sends is still only data."""
        port = free_port()
        mine = shell(1, 2, port)
        context = detect({name: str(value) for name, value in mine.items()}, as_rank=True)
        assert context.launcher
        key, guests = job_token(context, os.geteuid()), queue.Queue[Member]()
        door = LeaderListener(key, leader_ports(key, port), guests.put)
        door.open()
        job = Job([mine])
        links = {guest.hello.use: guest.link for guest in (guests.get(timeout=30), guests.get(timeout=30))}
        plan = msgspec.to_builtins(SmokePlan("gloo", (RankPlacement(0, "a"), RankPlacement(1, "b")), (Layout(dp=2),)))
        orders = {
            "do": "start",
            "plan": plan,
            "master": ["127.0.0.1", port],
            "worker": "def main(): open('/tmp/doctors-test-evil', 'w')",
            "python": "/bin/touch /tmp/doctors-test-evil",
        }
        lines = [
            {"marker": "m", "prepare": {"listen": False, "port": 0}},
            {**orders, "mine": [0]},
            {**orders, "mine": [1]},
        ]
        links["lines"].sendall(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        links["lines"].settimeout(60)
        with links["lines"].makefile("rb") as response:
            received = [next(line for line in response if word in line) for word in (b"fault", b"imported")]
        assert b"rank 1 runs here, not [0]" in received[0]
        assert b'"torch":"2.' in received[1]
        assert not Path("/tmp/doctors-test-evil").exists()
        links["wait"].sendall(b'{"verdict":0}\n')
        assert job.ends()[0].code == 0
        for link in links.values():
            link.close()
        door.close()


class TestEnds:
    def test_the_death_of_rank_0_ends_all(self) -> None:
        port = free_port()
        job = Job([shell(rank, 3, port) for rank in range(2)])  # the third never comes
        wait_for_guests(job)
        job.processes[0].kill()
        ended = job.ends()
        assert [row.code for row in ended] == [-9, 12]
        assert ended[1].err == "doctor: rank 1 lost its connection to rank 0, which has ended\n"

    def test_the_launchers_signal_ends_rank_0_with_a_report(self) -> None:
        port = free_port()
        job = Job([shell(rank, 3, port) for rank in range(2)])
        wait_for_guests(job)
        job.processes[0].send_signal(signal.SIGTERM)
        ended = job.ends()
        assert [row.code for row in ended] == [143, 143]


def wait_for_guests(job: Job) -> None:
    """Until the second process has started its agent, which it does once it has been let in."""
    children = Path(f"/proc/{job.processes[1].pid}/task/{job.processes[1].pid}/children")
    deadline = time.monotonic() + 20
    while not children.read_text().split():
        assert time.monotonic() < deadline
        time.sleep(0.02)

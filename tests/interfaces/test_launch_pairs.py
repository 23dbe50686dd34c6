"""Ranks, settings and launch lines, each next to a real gloo job or torchrun: an error exactly where the job dies."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import pytest

from doctor.engine.catalog import bundled_folder, load_check
from doctor.engine.evaluate import FactCache, evaluate_check
from doctor.engine.fact import Output, Visit
from doctor.engine.record import HostRecord, LaunchOptions
from doctor.environment.job_environment import of_launch_line
from doctor.job import LaunchConfig
from doctor.job.variables import of_one_host
from tests.hosts.fleet import Fleet
from tests.interfaces.gloo_fleet import GlooFleet, gloo_fleet

CHECKS = (
    "launch_differs",
    "launch_settings_invalid",
    "launch_option_refused",
    "launch_size_wrong",
    "launch_variable_misspelt",
    "rank_numbers_wrong",
)


def failures(launch: LaunchConfig, hosts: tuple[str, ...]) -> set[str]:
    """The checks of the launch that find an error."""
    outputs = {
        "GpuCards": {"": Output(out='{"pci": 0, "driver": "", "tool": false}')},
        "NpuInventory": {
            "": Output(out='{"pci": {}, "files": [], "refused": [], "tools": [], "chips": null, "newer": []}')
        },
    }
    records = {host: HostRecord(Visit(), outputs) for host in hosts}
    folder = bundled_folder("checks")
    outcomes = [
        evaluate_check(load_check(folder / f"{name}.py"), hosts, FactCache(records), {LaunchConfig: launch})
        for name in CHECKS
    ]
    return {setup.check for setup in outcomes if setup.findings and setup.found_severity.value == "error"}


class Row(NamedTuple):
    """Variables of all hosts and of single ones, and what becomes of the job."""

    name: str
    lives: bool
    environ: Mapping[str, str] = {}
    by_host: Mapping[int, Mapping[str, str]] = {}
    check: str = ""


DIFFERS, RANKS, INVALID = "launch-differs", "rank-numbers-wrong", "launch-settings-invalid"
GLOO_ROWS = [
    Row("nothing set", True),
    Row("each rank set by hand", True, {}, {number: {"RANK": str(number)} for number in range(3)}),
    Row("ranks in another order", True, {}, {0: {"RANK": "0"}, 1: {"RANK": "2"}, 2: {"RANK": "1"}}),
    Row("a rank twice", False, {}, {0: {"RANK": "0"}, 1: {"RANK": "1"}, 2: {"RANK": "1"}}, RANKS),
    Row("a rank that is not below the size", False, {"WORLD_SIZE": "3"}, {2: {"RANK": "3"}}, RANKS),
    Row("a rank far above", False, {"WORLD_SIZE": "3"}, {1: {"RANK": "30"}}, RANKS),
    Row("the size too great on one host", False, {"WORLD_SIZE": "3"}, {1: {"WORLD_SIZE": "4"}}, DIFFERS),
    Row("the size too small on one host", False, {"WORLD_SIZE": "3"}, {0: {"WORLD_SIZE": "2"}}, DIFFERS),
    Row(
        "the size is not the sum of the hosts' ranks",
        False,
        {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "1"},
        {},
        RANKS,
    ),
    Row("the sum of the hosts' ranks", True, {"WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "1"}),
    Row("another port on one host", False, {"MASTER_PORT": "29510"}, {2: {"MASTER_PORT": "29511"}}, DIFFERS),
    Row("another port on all", True, {"MASTER_PORT": "29512"}),
    Row("a port that is none", False, {"MASTER_PORT": "many"}, {}, INVALID),
    Row("a port above all", False, {"MASTER_PORT": "70000"}, {}, INVALID),
    Row("a size that is no number", False, {"WORLD_SIZE": "three"}, {}, INVALID),
    Row("another address that no host has", False, {}, {1: {"MASTER_ADDR": "10.74.9.9"}}, DIFFERS),
    Row("detailed debugging everywhere", True, {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}),
    Row("detailed debugging on one host", False, {}, {1: {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}}, DIFFERS),
    Row("more messages on one host", True, {}, {1: {"TORCH_DISTRIBUTED_DEBUG": "INFO"}}),
    Row("a misspelt variable", True, {"GLOO_SOCKET_IFNAM": "eno7"}),
    Row("NCCL's settings without NCCL", True, {"NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "2"}),
    Row("a switch of gloo that is none", False, {"TORCH_GLOO_LAZY_INIT": "maybe"}, {}, INVALID),
    Row("a number of threads that OpenMP passes over", True, {"OMP_NUM_THREADS": "all", "OMP_PLACES": "core"}),
    Row("NCCL's settings with words for numbers", True, {"NCCL_P2P_DISABLE": "true", "TORCH_NCCL_NAN_CHECK": "x"}),
    Row("a log level on one host", True, {}, {1: {"TORCH_CPP_LOG_LEVEL": "INFO"}}),
]


@pytest.fixture(scope="module")
def jobs(make_fleet: Callable[..., Fleet]) -> Iterator[GlooFleet]:
    """Three hosts that have imported torch."""
    fleet = gloo_fleet(make_fleet, 3, name="lp", subnet="10.74.0.0/16", shm="4g")
    yield fleet
    fleet.down()


@pytest.mark.hosts
@pytest.mark.full
@pytest.mark.timeout(600)  # new interpreters on three hosts, on a busy machine
@pytest.mark.parametrize("row", GLOO_ROWS, ids=lambda row: row.name)
def test_an_error_exactly_where_the_gloo_job_dies(jobs: GlooFleet, row: Row) -> None:
    hosts = jobs.fleet.hosts
    shared = {"MASTER_ADDR": jobs.fleet.addresses[hosts[0]], "MASTER_PORT": "29500", **row.environ}
    own_values = {host: {**shared, **row.by_host.get(number, {})} for number, host in enumerate(hosts)}
    launch = LaunchConfig.from_environment(shared, by_host={host: of_one_host(own_values[host]) for host in hosts})
    names = failures(launch, tuple(hosts))
    end = jobs.run({}, own_values, seconds=60 if row.lives else 3)
    assert end.lives == row.lives, end.messages
    assert bool(names) != row.lives, names
    assert not row.check or row.check in names


AT_IMPORT_ROWS = [("VERBOSE", False), ("detail", True), ("OFF", True), ("1", False)]
"""TORCH_DISTRIBUTED_DEBUG is read when torch is imported, which the hosts of the fleet have done before."""


@pytest.mark.full
@pytest.mark.parametrize(("level", "lives"), AT_IMPORT_ROWS, ids=[row[0] for row in AT_IMPORT_ROWS])
def test_a_level_of_debugging_that_torch_reads_at_its_import(level: str, lives: bool) -> None:
    environ = {"TORCH_DISTRIBUTED_DEBUG": level}
    names = failures(LaunchConfig.from_environment(environ), ("localhost",))
    command = [sys.executable, "-c", "import torch.distributed"]
    done = subprocess.run(command, env={**os.environ, **environ}, capture_output=True, timeout=90)
    assert (done.returncode == 0) == lives, done.stderr[-300:]
    assert names == (set() if lives else {INVALID})


ENDPOINT = "--rdzv-backend c10d --rdzv-endpoint 127.0.0.1:PORT"
TORCHRUN_ROWS = [
    ("--nproc-per-node 2", True, ""),
    ("--standalone --nproc_per_node 2", True, ""),
    (f"--nnodes 1:2 --rdzv-conf last_call_timeout=1 {ENDPOINT}", True, ""),
    ("--nnodes 1 --master-addr 127.0.0.1 --master-port PORT", True, ""),
    (f"--nnodes 2 --rdzv-conf join_timeout=3 {ENDPOINT}", False, "launch-size-wrong"),
    (f"--nnodes 2:3 --rdzv-conf join_timeout=3 {ENDPOINT}", False, "launch-size-wrong"),
    ("--nnodes four", False, "launch-option-refused"),
    ("--nnodes 2:1", False, "launch-option-refused"),
    ("--nproc-per-node many", False, "launch-option-refused"),
    ("--master-port 99999", False, "launch-option-refused"),
    ("--node-rank first", False, "launch-option-refused"),
]


FOREIGN = "203.0.113.9"
"""An address for documentation (RFC 5737), which no host has."""
MASTER_ROWS = [
    ("--nnodes 1 --master-addr 127.0.0.1 --master-port PORT", True),
    ("--nnodes 1 --master-addr OWN --master-port PORT", True),
    ("--standalone --master-addr FOREIGN", True),
    ("--nnodes 1 --master-addr FOREIGN --master-port PORT", False),
    ("--master-addr FOREIGN --master-port PORT", False),
    ("--nnodes 1 --rdzv-backend c10d --rdzv-endpoint FOREIGN:PORT --rdzv-conf read_timeout=3", False),
]


ENV_JOB = """
import datetime, os
import torch.distributed as dist
for name, source in (("RANK", "OMPI_COMM_WORLD_RANK"), ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE")):
    os.environ.setdefault(name, os.environ.get(source, ""))
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=8))
dist.barrier()
"""
HERE_ROWS = [
    ("mpirun -np 2 -x MASTER_ADDR=127.0.0.1 -x MASTER_PORT=%P", True),
    ("mpirun -np 2 -x MASTER_ADDR=OWN -x MASTER_PORT=%P", True),
    ("mpirun -np 2 -x MASTER_ADDR=FOREIGN -x MASTER_PORT=%P", False),
    ("mpirun -np 2 -H localhost:2 -x MASTER_ADDR=FOREIGN -x MASTER_PORT=%P", False),
    ("env MASTER_ADDR=FOREIGN MASTER_PORT=%P RANK=0 WORLD_SIZE=1", False),
    ("env MASTER_ADDR=OWN MASTER_PORT=%P RANK=0 WORLD_SIZE=1", True),
]
"""Launchers that are given no other host; Open MPI of Debian, as root."""


def own_address() -> str:
    """The address from which this host reaches others."""
    with socket.socket(type=socket.SOCK_DGRAM) as route:
        route.connect((FOREIGN, 9))
        return str(route.getsockname()[0])


@pytest.mark.hosts
@pytest.mark.full
@pytest.mark.parametrize(("start", "lives"), HERE_ROWS, ids=[row[0] for row in HERE_ROWS])
def test_ranks_that_are_all_here_and_a_master_that_is_not(start: str, lives: bool) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    argv = shlex.split(start.replace("%P", str(port)).replace("FOREIGN", FOREIGN).replace("OWN", own_address()))
    names = ("PET_", "MASTER_", "RANK", "WORLD_SIZE", "OMPI_")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    check = [sys.executable, "-m", "doctor", "check", "-s", "master-address-wrong", "--", *argv, "python", "train.py"]
    completed = subprocess.run(check, env=environ, capture_output=True, text=True, timeout=90)
    assert (completed.returncode, "FAIL    master-address-wrong" in completed.stdout) == (
        (0, False) if lives else (10, True)
    )
    if argv[0] == "mpirun":
        argv[1:1] = ["--allow-run-as-root", "--oversubscribe"]
    real = subprocess.run([*argv, sys.executable, "-c", ENV_JOB], env=environ, capture_output=True, timeout=120)
    assert (real.returncode == 0) == lives, real.stderr[-900:]
    assert lives or b"TCP client failed to connect" in real.stderr


@pytest.mark.full
@pytest.mark.parametrize(("options", "lives"), MASTER_ROWS, ids=[row[0] for row in MASTER_ROWS])
def test_one_host_whose_master_is_elsewhere(options: str, lives: bool) -> None:
    """A store that no process here can reach: torchrun waits for a minute and more."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    argv = shlex.split(options.replace("PORT", str(port)).replace("FOREIGN", FOREIGN).replace("OWN", own_address()))
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "MASTER_", "RANK"))}
    completed = subprocess.run(
        [sys.executable, "-m", "doctor", "check", "-s", "master-address-wrong", "--", "torchrun", *argv, "train.py"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert (completed.returncode, "FAIL    master-address-wrong" in completed.stdout) == (
        (0, False) if lives else (10, True)
    )
    real = subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *argv, "--no-python", "true"],
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        code = real.wait(90 if lives else 25)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        real.kill()
        real.wait()
    assert (code == 0) == lives


@pytest.mark.parametrize(
    ("options", "lives", "text"),
    [
        pytest.param(*row, marks=[] if row[0] == "--nnodes four" else [pytest.mark.full], id=row[0])
        for row in TORCHRUN_ROWS
    ],
)
def test_an_error_exactly_where_torchrun_dies(options: str, lives: bool, text: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    argv = shlex.split(options.replace("PORT", str(port)))
    source = of_launch_line(["torchrun", *argv, "--no-python", "true"], {})
    launch = LaunchConfig.from_options(source.complete(LaunchOptions()))
    errors = failures(launch, ("localhost",))
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "MASTER_", "RANK"))}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", *argv, "--no-python", "true"],
            env=environ,
            capture_output=True,
            text=True,
            timeout=90,
        )
        ended_well = done.returncode == 0
    except subprocess.TimeoutExpired:
        ended_well = False
    assert ended_well == lives
    assert errors == ({text} if text else set())

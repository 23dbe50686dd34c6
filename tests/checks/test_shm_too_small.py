import pytest

from doctor.engine.fact import Fact
from doctor.engine.quantities import GIB, MIB
from doctor.facts.gpu import GpuCards
from doctor.facts.job_paths import JobProgram
from doctor.facts.memory import SharedMemory
from doctor.job import LaunchConfig
from tests.checks.npus import npus
from tests.checks.run_check import advice, job, messages, run_check, skipped
from tests.checks.shm import shm

NAME = "shm-too-small"
GPUS = GpuCards(pci=8, driver="", tool=False)
SWITCHED = GpuCards(pci=8, driver="", tool=False, switches=4)


@pytest.mark.parametrize(
    ("size", "devices"), [(GIB, []), (GIB, [npus(8)]), (2 * GIB, [npus(16)]), (0, [npus(16)]), (500 * GIB, [])]
)
def test_enough_is_well(size: int, devices: list[Fact]) -> None:
    """A size of 0 is one without a limit."""
    assert messages(run_check(NAME, {"a": [shm(size), *devices]})) == []


def test_less_than_a_gibibyte_is_too_small_for_any_host() -> None:
    outcome = run_check(NAME, {"a": [shm(512 * MIB)]})
    assert messages(outcome) == [("a", "/dev/shm holds 512 MiB; expected at least 1 GiB")]
    assert messages(run_check(NAME, {"a": [shm(32 * MIB)]}))


@pytest.mark.parametrize("devices", [npus(16), GpuCards(pci=16, driver="", tool=False)])
def test_more_ranks_want_more(devices: Fact) -> None:
    outcome = run_check(NAME, {"a": [shm(GIB), devices]})
    assert outcome.findings[0].values["expected"] == "2 GiB"


def test_ranks_that_are_given_win() -> None:
    launch = job().from_environment({}, ranks_per_host=32)
    assert run_check(NAME, {"a": [shm(GIB), npus(8)]}, launch).findings[0].values["expected"] == "4 GiB"


def test_the_default_of_docker_is_left_to_its_own_check() -> None:
    assert messages(run_check(NAME, {"a": [shm(64 * MIB)]})) == []


@pytest.mark.parametrize(
    ("facts", "line", "severity"),
    [
        ([], "torchrun t.py", "warning"),
        ([npus(8)], "", "warning"),
        ([GPUS], "", "error"),
        ([GPUS], "1 host", "error"),
        ([SWITCHED], "1 host", "warning"),
        ([SWITCHED], "1 host P2P", "error"),
        ([SWITCHED], "2 hosts", "error"),
        ([GPUS], "2 hosts --nproc-per-node 1", "warning"),
        ([npus(8)], "2 hosts", "warning"),
        ([JobProgram("t.py", "there", workers=["=2"])], "torchrun t.py", "error"),
        ([JobProgram("t.py", "there", workers=["=0"])], "torchrun t.py", "warning"),
        ([JobProgram("t.py", "there", workers=["num_workers=0"])], "torchrun t.py --num-workers=4", "error"),
        ([JobProgram("t.py", "there", workers=["num_workers=4"])], "torchrun t.py --num_workers 0", "warning"),
        ([JobProgram("t.py", "there", workers=["=?"])], "torchrun t.py", "warning"),
    ],
)
def test_less_than_the_default_of_a_container_is_an_error_where_the_job_needs_more(
    facts: list[Fact], line: str, severity: str
) -> None:
    """Of 64 MiB and more, and of loader workers that only the program knows, it is a warning. So it is of GPUs that
    reach each other's memory, and of NPUs."""
    ranks = 1 if "--nproc" in line else 8
    world = 2 * ranks if "2 hosts" in line else ranks if "1 host" in line else None
    env = {"NCCL_P2P_DISABLE": "1"} if "P2P" in line else {}
    launch = LaunchConfig(launch_line=line, ranks_per_host=ranks, world_size=world, env=env)
    for name, room in ((NAME, shm(63 * MIB)), ("shm-docker-default", shm(64 * MIB)), ("shm-full", shm(GIB, 60 * MIB))):
        assert run_check(name, {"a": [room, *facts]}, launch).found_severity.value == severity
    assert run_check(NAME, {"a": [shm(65 * MIB), *facts]}, launch).found_severity.value == "warning"


def test_the_default_of_podman_is_left_to_the_other_check() -> None:
    assert messages(run_check(NAME, {"a": [shm(64_000 << 10)]})) == []


def test_without_the_folder_loader_workers_end() -> None:
    program = JobProgram("t.py", "there", workers=["=1"])
    outcome = run_check(NAME, {"a": [SharedMemory(size=0, free=0, there=False), program], "b": [shm(0)]})
    assert messages(outcome) == [("a", "there is no /dev/shm")]
    assert outcome.found_severity.value == "error"
    lives = run_check(NAME, {"a": [SharedMemory(size=0, free=0, there=False)]})
    assert lives.found_severity.value == "warning"
    assert "mkdir -m 1777 /dev/shm" in advice(NAME, outcome)


@pytest.mark.parametrize("name", ["shm-full", "shm-docker-default"])
def test_the_other_checks_say_nothing_of_a_folder_that_is_not_there(name: str) -> None:
    assert skipped(run_check(name, {"a": [SharedMemory(size=0, free=0, there=False)]})) == {"there is no /dev/shm"}

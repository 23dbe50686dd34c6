import pytest

from doctor.engine.fact import Fact
from doctor.engine.quantities import GIB, MIB
from doctor.facts.gpu import GpuCards
from doctor.facts.memory import SharedMemory
from tests.checks.npus import npus
from tests.checks.run_check import advice, job, messages, run_check, skipped
from tests.checks.shm import shm

NAME = "shm-too-small"


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


def test_less_than_the_default_of_a_container_is_an_error() -> None:
    severities = [run_check(NAME, {"a": [shm(size)]}).found_severity.value for size in (32 * MIB, 65 * MIB, 512 * MIB)]
    assert severities == ["error", "warning", "warning"]


def test_the_default_of_podman_is_left_to_the_other_check() -> None:
    assert messages(run_check(NAME, {"a": [shm(64_000 << 10)]})) == []


def test_without_the_folder_loader_workers_end() -> None:
    outcome = run_check(NAME, {"a": [SharedMemory(size=0, free=0, there=False)], "b": [shm(0)]})
    assert messages(outcome) == [("a", "there is no /dev/shm")]
    assert outcome.found_severity.value == "error"
    assert "mkdir -m 1777 /dev/shm" in advice(NAME, outcome)


@pytest.mark.parametrize("name", ["shm-full", "shm-docker-default"])
def test_the_other_checks_say_nothing_of_a_folder_that_is_not_there(name: str) -> None:
    assert skipped(run_check(name, {"a": [SharedMemory(size=0, free=0, there=False)]})) == {"there is no /dev/shm"}

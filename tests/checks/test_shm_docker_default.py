import pytest

from doctor.engine.quantities import GIB, MIB
from tests.checks.run_check import advice, messages, run_check
from tests.checks.shm import shm

NAME = "shm-docker-default"


@pytest.mark.parametrize("size", [0, 63 * MIB, 65 * MIB, 32 * GIB])
def test_any_other_size_was_chosen(size: int) -> None:
    assert messages(run_check(NAME, {"a": [shm(size)]})) == []


def test_exactly_64_mib_was_not() -> None:
    outcome = run_check(NAME, {"a": [shm(64 * MIB)]})
    text = "/dev/shm holds 64 MiB, the default of a container; expected more than 64 MiB"
    assert messages(outcome) == [("a", text)]


def test_the_advice_names_all_three_ways() -> None:
    text = advice(NAME, run_check(NAME, {"a": [shm(64 * MIB)]}))
    assert all(name in text for name in ("--shm-size=32g", "--ipc=host", "medium: Memory"))


def test_podman_has_a_default_of_its_own() -> None:
    assert "62.5 MiB, the default of a container" in messages(run_check(NAME, {"a": [shm(64_000 << 10)]}))[0][1]

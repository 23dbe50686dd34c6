import pytest

from doctor.facts.memory import GIB, MIB
from tests.checks.looked import advice, judged, said
from tests.checks.shm import shm

NAME = "shm-docker-default"


@pytest.mark.parametrize("size", [0, 63 * MIB, 65 * MIB, 32 * GIB])
def test_any_other_size_was_chosen(size: int) -> None:
    assert said(judged(NAME, {"a": [shm(size)]})) == []


def test_exactly_64_mib_was_not() -> None:
    outcome = judged(NAME, {"a": [shm(64 * MIB, container=True)]})
    text = "/dev/shm holds 64 MiB, the default of a container; expected --shm-size or --ipc=host"
    assert said(outcome) == [("a", text)]
    assert outcome.findings[0].values["container"] is True


def test_the_advice_names_all_three_ways() -> None:
    text = advice(NAME, judged(NAME, {"a": [shm(64 * MIB)]}))
    assert all(words in text for words in ("--shm-size=32g", "--ipc=host", "medium: Memory"))


def test_podman_has_a_default_of_its_own() -> None:
    assert "62.5 MiB, the default of a container" in said(judged(NAME, {"a": [shm(64_000 << 10)]}))[0][1]

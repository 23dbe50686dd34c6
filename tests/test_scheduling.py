"""Which tests run on one worker, and that it costs little to collect them."""

from __future__ import annotations

import pytest

from tests.conftest import LOADED
from tests.scheduling import LONG, TOGETHER, group_of, seconds_of

FAULTS = "tests/test_faults.py::test_faults_are_found_together"


@pytest.mark.parametrize(
    ("nodeid", "group"),
    [
        ("tests/test_merge.py::test_two[a2-x]", "tests/test_merge.py"),
        (f"{FAULTS}[a1-npu-missing+npu-busy]", "tests/test_faults.py a1"),
        (f"{FAULTS}[a3-npu-missing]", "tests/test_faults.py a3"),
        ("tests/test_faults.py::test_every_check_has_a_row_and_every_row_a_check", "tests/test_faults.py"),
        ("tests/playbooks/test_remedies.py::test_all[cpu]", "tests/playbooks/test_remedies.py cpu"),
        ("tests/test_translations.py::test_two", "tests/test_readme.py"),
        ("tests/smoke/test_launchers.py::TestSlurm::test_srun", "tests/smoke/test_launchers.py TestSlurm"),
    ],
)
def test_a_file_or_a_part_of_a_long_file_is_a_group(nodeid: str, group: str) -> None:
    assert group_of(nodeid) == group


def test_only_the_faults_of_the_largest_fleet_are_divided_again() -> None:
    groups = {group_of(f"{FAULTS}[{kind}-{number}]") for number in range(20) for kind in ("cpu", "a1", "a2", "a3")}
    assert groups == {f"tests/test_faults.py {part}" for part in ("cpu", "a1", "a20", "a21", "a3")}


def test_every_long_file_exists(request: pytest.FixtureRequest) -> None:
    assert [
        file for file in (*LONG, *TOGETHER, *TOGETHER.values()) if not (request.config.rootpath / file).is_file()
    ] == []
    assert seconds_of("tests/test_faults.py::test") > seconds_of("tests/test_merge.py::test") == 0


def test_nothing_slow_is_loaded_while_tests_are_collected(request: pytest.FixtureRequest) -> None:
    assert not {"torch", "torch._C"} & request.config.stash[LOADED]

"""Tests of one group run on one worker, in the order in which they were collected: pytest-xdist is asked to do so."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import pytest

from tests.conftest import LOADED
from tests.scheduling import LONG, group_of, scheduler, seconds_of

FAULTS = "tests/test_faults.py::test_faults_are_found_together"


@pytest.mark.parametrize(
    ("nodeid", "group"),
    [
        ("tests/test_merge.py::test_two[a2-x]", "tests/test_merge.py"),
        (f"{FAULTS}[a1-npu-missing+npu-busy]", "tests/test_faults.py a1"),
        (f"{FAULTS}[a3-npu-missing]", "tests/test_faults.py a3"),
        ("tests/test_faults.py::test_every_check_has_a_row_and_every_row_a_check", "tests/test_faults.py"),
        ("tests/playbooks/test_remedies.py::test_all[cpu]", "tests/playbooks/test_remedies.py cpu"),
        ("tests/smoke/test_launchers.py::TestSlurm::test_srun", "tests/smoke/test_launchers.py TestSlurm"),
    ],
)
def test_a_file_or_a_part_of_a_long_file_is_a_group(nodeid: str, group: str) -> None:
    assert group_of(nodeid) == group


def test_only_the_faults_of_the_largest_fleet_are_divided_again() -> None:
    groups = {group_of(f"{FAULTS}[{kind}-{number}]") for number in range(20) for kind in ("cpu", "a1", "a2", "a3")}
    assert groups == {f"tests/test_faults.py {part}" for part in ("cpu", "a1", "a20", "a21", "a3")}


def test_every_long_file_exists(request: pytest.FixtureRequest) -> None:
    assert [file for file in LONG if not (request.config.rootpath / file).is_file()] == []
    assert seconds_of("tests/test_faults.py::test") > seconds_of("tests/test_merge.py::test") == 0


def test_nothing_slow_is_loaded_while_tests_are_collected(request: pytest.FixtureRequest) -> None:
    assert not {"torch", "torch._C"} & request.config.stash[LOADED]


class Worker:
    """A worker of pytest-xdist that only counts its tests."""

    def __init__(self) -> None:
        self.indices: list[int] = []
        self.shutting_down = False
        self.gateway = Namespace(id="gw")

    def send_runtest_some(self, indices: list[int]) -> None:
        self.indices += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def test_a_group_is_not_divided_among_workers() -> None:
    pytest.importorskip("xdist")
    config: Any = Namespace(getvalue=lambda name: ["popen", "popen"], option=Namespace(loadscopereorder=True))
    schedule = scheduler(config, None)
    workers: list[Any] = [Worker(), Worker()]
    nodeids = [f"tests/test_{file}.py::test_{number}" for file in "abc" for number in range(8)]
    for worker in workers:
        schedule.add_node(worker)
        schedule.add_node_collection(worker, nodeids)
    schedule.schedule()
    while schedule.has_pending:
        for worker in workers:
            open_tests = [
                index
                for index in worker.indices
                if not schedule.assigned_work[worker][group_of(nodeids[index])][nodeids[index]]
            ]
            if open_tests:
                schedule.mark_test_complete(worker, open_tests[0])
    files = [{nodeids[index].partition("::")[0] for index in worker.indices} for worker in workers]
    assert sorted(index for worker in workers for index in worker.indices) == list(range(24))
    assert not files[0] & files[1]

"""Which rank of which job a process is: the variables of each launcher, alone and nested, and values that cannot be."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.environment.launchers import Adopted, Problem, first_host, tasks_per_node
from doctor.environment.rank import adopt, told

TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "GROUP_RANK": "1",
    "MASTER_ADDR": "w1",
    "MASTER_PORT": "29400",
    "TORCHELASTIC_RUN_ID": "job7",
    "TORCHELASTIC_RESTART_COUNT": "0",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}
MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
    "OMPI_MCA_orte_hnp_uri": "1266024448.0;tcp://192.0.2.2,10.1.0.2:57977;tcp6://[fd00::2]:35011",
    "PMIX_NAMESPACE": "1266024449",
}
SRUN = {
    "SLURM_JOB_ID": "42",
    "SLURM_STEP_ID": "1",
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "16",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_NODELIST": "n[0-1]",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "SLURMD_NODENAME": "n1",
}
MSRUN = {
    "MS_ROLE": "MS_WORKER",
    "MS_WORKER_NUM": "4",
    "MS_NODE_ID": "2",
    "RANK_ID": "2",
    "RANK_SIZE": "4",
    "DEVICE_ID": "2",
    "MS_SCHED_HOST": "10.0.0.1",
    "MS_SCHED_PORT": "8118",
}
SHELL = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "w1", "MASTER_PORT": "29500"}
ASCEND = {"RANK_ID": "9", "RANK_SIZE": "16", "DEVICE_ID": "1", "MASTER_ADDR": "w1", "MASTER_PORT": "29500"}


def taken(environ: dict[str, str]) -> Adopted:
    found = adopt(environ)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("environ", "fields"),
    [
        (
            TORCHRUN,
            {
                "launcher": "torchrun",
                "rank": 5,
                "world": 8,
                "local": 1,
                "local_world": 4,
                "node": 1,
                "device": 1,
                "addresses": ("w1",),
                "port": 29400,
                "taken": True,
                "identity": "torchrun job7 0 29400",
                "seen": ("torchrun",),
            },
        ),
        ({**TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE": "False"}, {"launcher": "torchrun", "taken": False}),
        (
            MPIRUN,
            {
                "launcher": "mpirun",
                "rank": 3,
                "world": 4,
                "local": 0,
                "local_world": 1,
                "addresses": ("192.0.2.2", "10.1.0.2", "fd00::2"),
                "address_from": "OMPI_MCA_orte_hnp_uri",
                "port": 0,
                "identity": "mpirun 1266024449",
            },
        ),
        (
            {**MPIRUN, "OMPI_COMM_WORLD_LOCAL_SIZE": "4"},
            {"addresses": ("127.0.0.1",), "address_from": "MASTER_ADDR", "notes": ()},
        ),
        (
            {**MPIRUN, "MASTER_ADDR": "w1", "MASTER_PORT": "29500"},
            {"addresses": ("w1",), "port": 29500, "notes": ()},
        ),
        (
            SRUN,
            {
                "launcher": "srun",
                "rank": 3,
                "world": 4,
                "local": 1,
                "local_world": 2,
                "node": 1,
                "addresses": ("n0",),
                "address_from": "SLURM_STEP_NODELIST",
                "identity": "srun 42.1",
                "host": "n1",
            },
        ),
        (
            MSRUN,
            {
                "launcher": "msrun",
                "role": "rank",
                "rank": 2,
                "world": 4,
                "device": 2,
                "addresses": ("10.0.0.1",),
                "address_from": "MS_SCHED_HOST",
                "leads": False,
                "seen": ("msrun",),
            },
        ),
        (
            SHELL,
            {"launcher": "environment", "rank": 1, "world": 4, "local": 1, "device": 1, "port": 29500, "leads": False},
        ),
        (ASCEND, {"launcher": "environment", "rank": 9, "world": 16, "local": 1, "device": 1, "addresses": ("w1",)}),
        ({"RANK": "0", "WORLD_SIZE": "2"}, {"addresses": ("127.0.0.1",), "port": 0, "local": -1, "leads": True}),
    ],
)
def test_a_launcher_is_read_by_its_own_variables(environ: dict[str, str], fields: dict[str, Any]) -> None:
    found = taken(environ)
    assert {name: getattr(found, name) for name in fields} == fields
    assert found.problems == ()


def test_without_a_launcher_there_is_nothing_to_adopt() -> None:
    assert adopt({"PATH": "/bin", "SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[0-3]"}) is None
    assert adopt({"RANK": "", "TORCHELASTIC_RUN_ID": ""}) is None


def test_the_scheduler_of_msrun_leads_although_it_is_told_to_be_rank_0() -> None:
    found = taken({**MSRUN, "MS_ROLE": "MS_SCHED", "RANK_ID": "0", "MS_NODE_ID": "sched"})
    assert (found.role, found.rank, found.leads, found.problems) == ("scheduler", -1, True, ())
    assert taken({**MSRUN, "RANK_ID": "0"}).leads is False


class TestNesting:
    @pytest.mark.parametrize(
        ("environ", "launcher", "outer"),
        [
            ({**SRUN, **TORCHRUN}, "torchrun", ["srun"]),
            ({**SRUN, **MPIRUN}, "mpirun", ["srun"]),
            ({**MPIRUN, **TORCHRUN}, "torchrun", ["mpirun"]),
            ({**SRUN, **MSRUN}, "msrun", ["srun"]),
        ],
    )
    def test_the_innermost_launcher_wins_and_it_is_said(
        self, environ: dict[str, str], launcher: str, outer: list[str]
    ) -> None:
        found = taken(environ)
        assert found.launcher == launcher
        assert any(f"started by {launcher} inside of {' and '.join(outer)}" in note for note in found.notes)

    def test_a_loop_in_a_single_task_is_the_innermost(self) -> None:
        found = taken({**SRUN, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", **SHELL})
        assert (found.launcher, found.rank, found.world) == ("environment", 1, 4)
        assert found.notes == ("started by a loop in a shell inside of srun: the ranks are those of a loop in a shell",)

    def test_variables_that_contradict_the_launcher_are_noted(self) -> None:
        found = taken({**SRUN, "RANK": "0", "WORLD_SIZE": "4"})
        assert (found.launcher, found.rank) == ("srun", 3)
        (note,) = found.notes
        assert note.startswith("RANK is 0, but srun made this rank 3 of 4")

    def test_variables_that_agree_with_it_are_not(self) -> None:
        assert taken({**SRUN, "RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "n0"}).notes == ()


class TestTheJobsName:
    @pytest.mark.parametrize(
        ("environ", "changes"),
        [
            (TORCHRUN, {"RANK": "0", "LOCAL_RANK": "0", "GROUP_RANK": "0", "MASTER_ADDR": "elsewhere"}),
            (MPIRUN, {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "3"}),
            (SRUN, {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURMD_NODENAME": "n0"}),
            (MSRUN, {"MS_ROLE": "MS_SCHED", "RANK_ID": "0", "MS_SCHED_HOST": "elsewhere"}),
            (SHELL, {"RANK": "0", "WORLD_SIZE": "5", "MASTER_ADDR": "elsewhere"}),
        ],
    )
    def test_is_the_same_for_all_its_processes(self, environ: dict[str, str], changes: dict[str, str]) -> None:
        assert taken(environ).identity == taken({**environ, **changes}).identity

    @pytest.mark.parametrize(
        ("environ", "changes"),
        [
            (TORCHRUN, {"TORCHELASTIC_RUN_ID": "job8"}),
            (TORCHRUN, {"TORCHELASTIC_RESTART_COUNT": "1"}),
            (MPIRUN, {"PMIX_NAMESPACE": "1"}),
            (SRUN, {"SLURM_STEP_ID": "2"}),
            (MSRUN, {"MS_SCHED_PORT": "8119"}),
            (SHELL, {"MASTER_PORT": "29501"}),
        ],
    )
    def test_is_another_one_for_another_job(self, environ: dict[str, str], changes: dict[str, str]) -> None:
        assert taken(environ).identity != taken({**environ, **changes}).identity


class TestImpossibleValues:
    @pytest.mark.parametrize(
        ("changes", "text"),
        [
            ({"RANK": "two"}, "RANK='two', expected a whole number from 0 to 3"),
            ({"RANK": "4"}, "RANK='4', expected a whole number from 0 to 3"),
            ({"RANK": "-1"}, "RANK='-1', expected a whole number from 0 to 3"),
            ({"WORLD_SIZE": "0"}, "WORLD_SIZE='0', expected a whole number from 1"),
            ({"WORLD_SIZE": ""}, "WORLD_SIZE is not set, expected a whole number from 1"),
            ({"MASTER_PORT": "70000"}, "MASTER_PORT='70000', expected a whole number from 1 to 65535"),
            ({"LOCAL_RANK": "x"}, "LOCAL_RANK='x', expected a whole number from 0"),
        ],
    )
    def test_each_is_named(self, changes: dict[str, str], text: str) -> None:
        found = taken({**SHELL, **changes})
        assert [problem.text for problem in found.problems if problem.variable in changes] == [text]

    def test_slurms_rank_beyond_its_step(self) -> None:
        (problem,) = taken({**SRUN, "SLURM_PROCID": "4"}).problems
        assert problem == Problem("SLURM_PROCID", "4", "a whole number from 0 to 3")


class TestProcessesOfAProgram:
    def test_they_are_told_by_arguments(self) -> None:
        found = told({**SRUN, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}, 1, 4, job="77")
        assert (found.launcher, found.rank, found.world, found.local) == ("spawn", 1, 4, 1)
        assert (found.addresses, found.identity, found.problems) == (("127.0.0.1",), "spawn 77", ())

    def test_a_rank_that_cannot_be(self) -> None:
        assert told({}, 4, 4).problems[0].variable == "RANK"


@given(
    st.dictionaries(
        st.sampled_from(sorted({*TORCHRUN, *MPIRUN, *SRUN, *MSRUN, *SHELL, *ASCEND})), st.text(max_size=12), max_size=12
    )
)
def test_no_environment_is_too_strange(environ: dict[str, str]) -> None:
    found = adopt(environ)
    if found and not found.problems and found.role == "rank":
        assert 0 <= found.rank < found.world


@given(st.text(max_size=40))
def test_no_list_of_slurm_is_too_strange(text: str) -> None:
    assert all(isinstance(count, int) for count in tasks_per_node(text))
    assert len(first_host(text)) <= 1

"""Slurm: a shell of salloc, a batch script, a task of srun, mpirun's ranks in the script, a prolog."""

from __future__ import annotations

from typing import Any

import pytest

from doctor.environment.schedulers import batch_allocation, scheduler_host_name
from tests.environment.contexts import Environ, context, fields, scheduler_sample, summary
from tests.environment.launchers.test_mpirun import TWO_ON_A_HOST as MPIRUN
from tests.environment.launchers.test_torchrun import EXAMPLE as TORCHRUN

# What a Slurm 22.05 set.
ALLOCATED = {
    "SLURM_JOB_ID": "1234",
    "SLURM_JOB_NODELIST": "n[0-3]",
    "SLURM_JOB_NUM_NODES": "4",
    "SLURM_NNODES": "4",
    "SLURM_TASKS_PER_NODE": "2(x4)",
}
BATCH = scheduler_sample("slurm")
TASK = {
    **ALLOCATED,
    "SLURMD_NODENAME": "n2",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_TASKS_PER_NODE": "3,1",
    "SLURM_NNODES": "2",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
}
DAEMON = {"SLURM_STEP_ID": "1", "SLURM_STEP_NODELIST": "n[1-3]", "SLURM_STEP_NUM_TASKS": "3", "SLURM_PROCID": "1"}


@pytest.mark.parametrize(
    ("environ", "expected_summary", "expected"),
    [
        (
            ALLOCATED,
            ("Slurm job 1234", "slurm:1234", "cluster"),
            {
                "started": "once",
                "hosts": ("n0", "n1", "n2", "n3"),
                "hosts_source": "SLURM_JOB_NODELIST",
                "node_count": 4,
            },
        ),
        (
            BATCH,
            ("Slurm job 1234, batch script on n0", "slurm:1234", "cluster"),
            {"started": "once", "hosts": ("n0", "n1", "n2", "n3"), "node_rank": 0, "shares_host": False},
        ),
        (
            TASK,
            ("Slurm job 1234, step 0, task 3 of 4 on n2", "slurm:1234", "local"),
            {
                "started": "ranks",
                "scheduler": "slurm",
                "scheduler_host_name": "n2",
                "launcher": "srun",
                "hosts": ("n1", "n2"),
                "hosts_source": "SLURM_STEP_NODELIST",
                "rank": 3,
                "world_size": 4,
                "local_rank": 0,
                "local_world_size": 1,
                "node_rank": 1,
                "node_count": 2,
            },
        ),
        (
            {**TASK, "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"},
            ("Slurm job 1234, step 0 on n2", "slurm:1234", "cluster"),
            {"started": "once", "hosts": ("n0", "n1", "n2", "n3")},
        ),
        (
            {**ALLOCATED, "SLURM_SCRIPT_CONTEXT": "prolog_slurmd", "SLURMD_NODENAME": "n2"},
            ("Slurm job 1234, prolog on n2", "slurm:1234", "local"),
            {"started": "prolog"},
        ),
        (
            {**BATCH, **DAEMON, **MPIRUN},
            ("Slurm job 1234, mpirun, rank 2 of 3 on n0", "slurm:1234/openmpi", "follower"),
            {"launcher": "mpirun", "hosts": ("n0", "n1", "n2", "n3"), "rank": 2, "node_count": 4},
        ),
        (
            {**TASK, **TORCHRUN},
            ("Slurm job 1234, torchrun, rank 5 of 8 on n2", "slurm:1234/torchrun", "follower"),
            {
                "launcher": "torchrun",
                "launchers": ("torchrun", "srun"),
                "hosts": ("n1", "n2"),
                "rank": 5,
                "local_world_size": 4,
                "node_rank": 1,
            },
        ),
        (
            {**TASK, **TORCHRUN, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"},
            ("Slurm job 1234, step 0, task 3 of 4 on n2", "slurm:1234", "local"),
            {"launcher": "srun", "rank": 3, "conflicts": ()},
        ),
    ],
)
def test_a_context(environ: Environ, expected_summary: tuple[str, str, str], expected: dict[str, Any]) -> None:
    detected = context(environ)
    assert summary(detected) == expected_summary
    assert fields(detected, expected) == expected


# What sbatch -N1 : -N2 of Slurm 22.05 set in the batch script.
HETEROGENEOUS = {
    **BATCH,
    "SLURM_HET_SIZE": "2",
    "SLURM_JOB_NODELIST": "n0",
    "SLURM_JOB_NUM_NODES": "1",
    "SLURM_NNODES": "1",
    "SLURM_JOB_NODELIST_HET_GROUP_0": "n0",
    "SLURM_JOB_NODELIST_HET_GROUP_1": "n[1-2]",
}


def test_a_heterogeneous_job_is_whole() -> None:
    detected = context(HETEROGENEOUS)
    assert (detected.hosts, detected.conflicts, detected.hosts_unknown) == (("n0", "n1", "n2"), (), "")
    old = {name.replace("HET_", "PACK_"): value for name, value in HETEROGENEOUS.items()}
    assert context(old).hosts == ("n0", "n1", "n2")


def test_a_component_without_nodes_is_refused() -> None:
    without = {name: value for name, value in HETEROGENEOUS.items() if not name.endswith("_1")}
    assert "SLURM_JOB_NODELIST_HET_GROUP_1 is not set" in context(without).hosts_error


def test_the_older_names() -> None:
    detected = context({"SLURM_JOBID": "7", "SLURM_NODELIST": "n[1-2]"})
    assert (detected.job_id, detected.hosts, detected.hosts_source) == ("7", ("n1", "n2"), "SLURM_NODELIST")


def test_a_restarted_job_is_another_one() -> None:
    assert context({**TASK, "SLURM_RESTART_COUNT": "1"}).identity != context(TASK).identity
    assert context({**TASK, "SLURM_PROCID": "0", "SLURM_NODEID": "0"}).identity == context(TASK).identity


def test_the_variables_that_other_commands_read() -> None:
    allocation = batch_allocation(ALLOCATED)
    assert allocation and [hosts.source for hosts in allocation.host_lists] == ["SLURM_JOB_NODELIST"]
    assert scheduler_host_name({"SLURMD_NODENAME": "n7"}) == "n7"
    assert (batch_allocation({}), scheduler_host_name({"HOSTNAME": "n7"})) == (None, "")

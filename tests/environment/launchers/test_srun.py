"""Slurm's srun: which rank its variables say, with and without the variables of the job around it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from doctor.environment.launchers import first_host, tasks_per_node
from doctor.environment.variables import VariableProblem
from tests.environment.contexts import context, fields, launcher_sample, rank_context, summary

EXAMPLE = launcher_sample("srun")


def test_a_rank() -> None:
    expected = {
        "launcher": "srun",
        "rank": 3,
        "world_size": 4,
        "local_rank": 1,
        "local_world_size": 2,
        "node_rank": 1,
        "leader_addresses": ("n0",),
        "leader_address_source": "SLURM_STEP_NODELIST",
        "launch_id": "srun 42 1",
        "launcher_host_name": "n1",
        "problems": (),
    }
    assert fields(rank_context(EXAMPLE), expected) == expected


def test_a_batch_script_has_no_rank() -> None:
    assert context({"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[0-3]", "SLURM_PROCID": "0"}).launcher == ""


def test_a_step_without_the_jobs_variables() -> None:
    """As in a container, or after ``env -u SLURM_JOB_ID``."""
    detected = context({"SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"})
    assert summary(detected) == ("srun, step 0, task 0 of 2", "srun", "cluster")
    expected = {"kind": "srun", "scheduler": "", "launcher": "srun", "rank": 0, "world_size": 2}
    assert fields(detected, expected) == expected


def test_a_rank_beyond_its_step() -> None:
    (problem,) = rank_context({**EXAMPLE, "SLURM_PROCID": "4"}).problems
    assert problem == VariableProblem("SLURM_PROCID", "4", "a whole number from 0 to 3")


def test_the_launch_id_is_the_jobs() -> None:
    launch_id = rank_context(EXAMPLE).launch_id
    others = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURMD_NODENAME": "n0"}
    assert rank_context({**EXAMPLE, **others}).launch_id == launch_id
    assert rank_context({**EXAMPLE, "SLURM_STEP_ID": "2"}).launch_id != launch_id


def test_two_clusters_that_number_their_jobs_alike_have_launches_of_their_own() -> None:
    ids = {rank_context({**EXAMPLE, "SLURM_STEP_LAUNCHER_PORT": port}).launch_id for port in ("", "4001", "4002")}
    assert len(ids) == 3


@given(st.text(max_size=40))
def test_no_list_of_slurm_is_too_strange(text: str) -> None:
    assert all(isinstance(count, int) for count in tasks_per_node(text))
    assert len(first_host(text)) <= 1

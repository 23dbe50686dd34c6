"""What states the size of a job, and which of it cannot both be true."""

from __future__ import annotations

import pytest

from doctor.job.job_size import contradictions, least_hosts, stated_sizes

AGREES: list[dict[str, str]] = [
    {},
    {"WORLD_SIZE": "16"},
    {"WORLD_SIZE": "16", "RANK_SIZE": "16", "MS_WORKER_NUM": "16"},
    {"WORLD_SIZE": "16", "OMPI_COMM_WORLD_SIZE": "16", "OMPI_COMM_WORLD_LOCAL_SIZE": "8"},
    {"WORLD_SIZE": "16", "OMPI_COMM_WORLD_SIZE": "2"},
    {"WORLD_SIZE": "32", "SLURM_NTASKS": "4", "SLURM_NNODES": "4"},
    {"WORLD_SIZE": "32", "SLURM_NTASKS": "32", "SLURM_NNODES": "4", "SLURM_JOB_NUM_NODES": "4"},
    {"WORLD_SIZE": "4", "RANK_SIZE": "32", "NNODES": "4"},
    {"WORLD_SIZE": "16", "NNODES": "2", "LOCAL_WORLD_SIZE": "8"},
    {"WORLD_SIZE": "2", "PET_NNODES": "2", "LOCAL_WORLD_SIZE": "8"},
    {"NNODES": "2:4", "WORLD_SIZE": "16"},
    {"SLURM_JOB_NUM_NODES": "8", "SLURM_NNODES": "2", "NUM_NODES": "2"},
    {"WORLD_SIZE": "many", "RANK_SIZE": "16"},
    {"WORLD_SIZE": "99999999999", "RANK_SIZE": "16"},
    {"OMPI_COMM_WORLD_SIZE": "2", "SLURM_STEP_NUM_NODES": "4", "SLURM_STEP_ID": "0"},
    {"OMPI_COMM_WORLD_SIZE": "16", "OMPI_COMM_WORLD_LOCAL_SIZE": "8", "SLURM_STEP_NUM_NODES": "4"},
    {"MV2_COMM_WORLD_SIZE": "3", "MV2_COMM_WORLD_LOCAL_SIZE": "2", "NNODES": "2"},
    {"PMI_SIZE": "7", "PALS_LOCAL_SIZE": "3", "NNODES": "2"},
    {"SLURM_NTASKS": "4", "SLURM_NNODES": "8"},
]


@pytest.mark.parametrize("environ", AGREES)
def test_what_agrees(environ: dict[str, str]) -> None:
    assert list(contradictions(stated_sizes(environ))) == []


@pytest.mark.parametrize(
    ("environ", "first", "second", "certain"),
    [
        ({"WORLD_SIZE": "15", "RANK_SIZE": "16"}, "RANK_SIZE", "WORLD_SIZE", True),
        ({"WORLD_SIZE": "16", "RANK_SIZE": "32"}, "RANK_SIZE", "WORLD_SIZE", False),
        ({"WORLD_SIZE": "16", "MS_WORKER_NUM": "12"}, "MS_WORKER_NUM", "WORLD_SIZE", True),
        ({"WORLD_SIZE": "15", "OMPI_COMM_WORLD_SIZE": "16"}, "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", True),
        ({"RANK_SIZE": "15", "PMI_SIZE": "16"}, "RANK_SIZE", "PMI_SIZE", True),
        ({"WORLD_SIZE": "15", "SLURM_NTASKS": "16"}, "WORLD_SIZE", "SLURM_NTASKS", False),
        ({"WORLD_SIZE": "15", "SLURM_NTASKS": "16", "SLURM_STEP_ID": "0"}, "WORLD_SIZE", "SLURM_NTASKS", True),
        ({"WORLD_SIZE": "15", "SLURM_STEP_NUM_TASKS": "16"}, "WORLD_SIZE", "SLURM_STEP_NUM_TASKS", True),
        ({"WORLD_SIZE": "15", "NUM_NODES": "2", "LOCAL_WORLD_SIZE": "8"},
         "WORLD_SIZE", "NUM_NODES x LOCAL_WORLD_SIZE", True),
        ({"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "16"}, "LOCAL_WORLD_SIZE", "WORLD_SIZE", True),
        ({"NNODES": "4", "NUM_NODES": "2"}, "NNODES", "NUM_NODES", True),
        ({"WORLD_SIZE": "16", "NNODES": "32"}, "WORLD_SIZE", "NNODES", False),
        ({"NNODES": "3", "SLURM_NNODES": "2"}, "NNODES", "SLURM_NNODES", False),
        ({"PET_NNODES": "4:8", "SLURM_JOB_NUM_NODES": "2"}, "PET_NNODES", "SLURM_JOB_NUM_NODES", False),
        ({"FLUX_JOB_SIZE": "8", "FLUX_JOB_NNODES": "16"}, "FLUX_JOB_SIZE", "FLUX_JOB_NNODES", False),
        ({"SLURM_NTASKS": "7", "SLURM_NNODES": "8", "SLURM_STEP_ID": "0"}, "SLURM_NTASKS", "SLURM_NNODES", False),
        ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"},
         "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE", True),
        ({"PMI_SIZE": "16", "PALS_LOCAL_SIZE": "4", "NNODES": "3"}, "NNODES", "PMI_SIZE / PALS_LOCAL_SIZE", False),
    ],
)  # fmt: skip
def test_what_cannot_both_be_true(environ: dict[str, str], first: str, second: str, certain: bool) -> None:
    (pair,) = contradictions(stated_sizes(environ))
    assert (pair.first.source, pair.second.source, pair.is_certain) == (first, second, certain)


def test_what_a_launcher_sets_itself_is_not_in_force() -> None:
    environ = {"WORLD_SIZE": "15", "RANK_SIZE": "16", "LOCAL_WORLD_SIZE": "3"}
    assert len(list(contradictions(stated_sizes(environ, ["srun"])))) == 1
    assert stated_sizes(environ, ["srun", "torchrun"]) == []


@pytest.mark.parametrize("mark", ["TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE"])
@pytest.mark.parametrize("asked", ["NNODES", "NUM_NODES", "PET_NNODES"])
def test_a_rank_of_torchrun_goes_by_what_was_started(mark: str, asked: str) -> None:
    """`NNODES=2` in the script, and torchrun --standalone in its launch line: the job is healthy."""
    environ = {"WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3", asked: "2"}
    assert len(list(contradictions(stated_sizes(environ)))) == 1
    assert list(contradictions(stated_sizes({**environ, mark: "1"}))) == []
    assert least_hosts({**environ, mark: "1"}) == 1
    assert len(list(contradictions(stated_sizes({**environ, mark: "1", "RANK_SIZE": "2"})))) == 1

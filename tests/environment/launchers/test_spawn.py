"""Processes that a program starts by itself: arguments say which rank each is."""

from __future__ import annotations

from doctor.environment.job_context import for_spawned
from tests.environment.contexts import fields
from tests.environment.launchers.test_srun import EXAMPLE as SRUN


def test_arguments_count_and_not_the_launcher_around_the_program() -> None:
    environ = {**SRUN, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    detected = for_spawned(environ, 1, 4, job_id="77")
    expected = {
        "launcher": "spawn",
        "launchers": ("spawn",),
        "rank": 1,
        "world_size": 4,
        "local_rank": 1,
        "leader_addresses": ("127.0.0.1",),
        "leader_port": 29500,
        "launch_id": "spawn 77",
        "problems": (),
        "description": "Slurm job 42, torch.multiprocessing.spawn, rank 1 of 4 on n1",
        "tag": "slurm:42/spawn",
    }
    assert fields(detected, expected) == expected


def test_a_rank_that_cannot_be() -> None:
    assert for_spawned({}, 4, 4).problems[0].variable == "RANK"

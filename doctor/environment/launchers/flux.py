"""Flux's ``flux run``.

Source: flux-environment(7) and flux-core, src/shell: FLUX_TASK_RANK, FLUX_TASK_LOCAL_ID, FLUX_JOB_SIZE,
FLUX_JOB_NNODES and FLUX_JOB_ID of each task. A batch script has none of the task's.
"""

from __future__ import annotations

from doctor.environment.launcher import LaunchedRank, RankLauncher
from doctor.environment.variables import EnvironmentVariables


class FluxRun(RankLauncher):
    """Ranks that are the tasks of a Flux job."""

    name = "flux"
    title = "flux run"
    priority = 48
    markers = ("FLUX_TASK_RANK", "FLUX_JOB_SIZE")
    world_size_variable = "FLUX_JOB_SIZE"
    names_leader = False
    scheduler = "flux"

    def read(self, variables: EnvironmentVariables) -> LaunchedRank:
        """See `RankLauncher.read`."""
        rank, world_size = variables.rank_and_world_size("FLUX_TASK_RANK", "FLUX_JOB_SIZE")
        local_rank = variables.number("FLUX_TASK_LOCAL_ID", required=False)
        one_host = variables.number("FLUX_JOB_NNODES", minimum=1, required=False) == 1
        return LaunchedRank(
            launcher=self,
            launch_id=f"flux {variables.text('FLUX_JOB_ID')}",
            rank=rank,
            world_size=world_size,
            local_rank=local_rank,
            local_world_size=world_size if one_host else None,
            device=local_rank,
            leader_addresses=variables.addresses("MASTER_ADDR"),
            leader_port=variables.port("MASTER_PORT"),
        )

    def describe(self, rank_of_world: str, variables: EnvironmentVariables) -> list[str]:
        """See `RankLauncher.describe`."""
        return [f"task {rank_of_world}"]


LAUNCHER = FluxRun()

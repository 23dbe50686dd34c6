"""MindSpore's msrun.

Source: MindSpore, "msrun Launching" and "Dynamic Cluster Startup", tables of environment variables. One process of a
job is its scheduler (MS_ROLE=MS_SCHED): it runs the same script and is no rank, although it has RANK_ID=0 too.
DEVICE_ID is a device's number and not the rank within the host: a job may have devices 4 to 7.
"""

from __future__ import annotations

from doctor.environment.launcher import LaunchedRank, RankLauncher
from doctor.environment.variables import MOST_RANKS, EnvironmentVariables
from doctor.job.variables import MINDSPORE_PORT


class Msrun(RankLauncher):
    """Ranks that MindSpore's msrun starts, and its scheduler process."""

    name = "msrun"
    priority = 40
    markers = ("MS_ROLE",)
    world_size_variable = "MS_WORKER_NUM"
    sets_rank_variables = True

    def read(self, variables: EnvironmentVariables) -> LaunchedRank:
        """See `RankLauncher.read`."""
        is_scheduler = variables.text("MS_ROLE") == "MS_SCHED"
        world_size = variables.number("MS_WORKER_NUM", minimum=1)
        number = variables.first_set("RANK_ID", "MS_NODE_ID")
        most = world_size - 1 if world_size else MOST_RANKS
        port = variables.port("MS_SCHED_PORT", MINDSPORE_PORT)
        return LaunchedRank(
            launcher=self,
            launch_id=f"msrun {port} {world_size}",
            rank=None if is_scheduler else variables.number(number, maximum=most),
            world_size=world_size,
            device=variables.number("DEVICE_ID", required=False),
            is_scheduler_process=is_scheduler,
            leader_is_scheduler=True,
            leader_addresses=variables.addresses("MS_SCHED_HOST") or ("127.0.0.1",),
            leader_address_source="MS_SCHED_HOST",
            leader_port=port,
        )


LAUNCHER = Msrun()

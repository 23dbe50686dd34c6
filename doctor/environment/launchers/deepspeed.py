"""DeepSpeed's launcher.

Source: EleutherAI/gpt-neox, "Running on multi-node": DLTS_HOSTFILE names the hostfile. Of its ranks,
deepspeed/launcher/ launch.py sets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_SIZE, CROSS_RANK and CROSS_SIZE.
"""

from __future__ import annotations

from doctor.environment.launcher import LaunchedRank, RankLauncher
from doctor.environment.variables import EnvironmentVariables


class DeepSpeed(RankLauncher):
    """Ranks that deepspeed starts."""

    name = "deepspeed"
    priority = 45
    markers = ("CROSS_RANK", "CROSS_SIZE", "LOCAL_SIZE", "RANK")
    sets_rank_variables = True
    hostfile_variables = ("DLTS_HOSTFILE",)

    def read(self, variables: EnvironmentVariables) -> LaunchedRank:
        """See `RankLauncher.read`."""
        rank, world_size = variables.rank_and_world_size("RANK", "WORLD_SIZE")
        local_rank = variables.number("LOCAL_RANK")
        port = variables.port("MASTER_PORT")
        return LaunchedRank(
            launcher=self,
            launch_id=f"deepspeed {port}",
            rank=rank,
            world_size=world_size,
            local_rank=local_rank,
            local_world_size=variables.number("LOCAL_SIZE", minimum=1, required=False),
            node_rank=variables.number("CROSS_RANK", required=False),
            device=local_rank,
            leader_addresses=variables.addresses("MASTER_ADDR"),
            leader_port=port,
        )


LAUNCHER = DeepSpeed()

"""torchrun, and ``python -m torch.distributed.launch``.

Source: PyTorch, "torchrun (Elastic Launch)", section "Environment Variables". TORCHELASTIC_USE_AGENT_STORE is set by
torch/distributed/elastic/agent/server/local_elastic_agent.py: where it is True, torchrun's own agent listens at
MASTER_PORT.
"""

from __future__ import annotations

from doctor.environment.launcher import LaunchedRank, RankLauncher
from doctor.environment.variables import EnvironmentVariables
from doctor.job.variables import AGENT_STORE


class Torchrun(RankLauncher):
    """Ranks that torchrun starts."""

    name = "torchrun"
    priority = 10
    markers = ("TORCHELASTIC_RUN_ID", "RANK")
    sets_rank_variables = True

    def read(self, variables: EnvironmentVariables) -> LaunchedRank:
        """See `RankLauncher.read`."""
        rank, world_size = variables.rank_and_world_size("RANK", "WORLD_SIZE")
        local_rank = variables.number("LOCAL_RANK")
        port = variables.port("MASTER_PORT")
        restart = variables.text("TORCHELASTIC_RESTART_COUNT", "0")
        return LaunchedRank(
            launcher=self,
            launch_id=f"torchrun {variables.text('TORCHELASTIC_RUN_ID')} {restart} {port}",
            rank=rank,
            world_size=world_size,
            local_rank=local_rank,
            local_world_size=variables.number("LOCAL_WORLD_SIZE", minimum=1, required=False),
            node_rank=variables.number("GROUP_RANK", required=False),
            device=local_rank,
            leader_addresses=variables.addresses("MASTER_ADDR"),
            leader_port=port,
            leader_port_in_use=variables.text(AGENT_STORE) == "True",
        )


LAUNCHER = Torchrun()

"""Horovod's launcher with Gloo.

Source: horovod/horovod, horovod/runner/gloo_run.py: HOROVOD_RANK, HOROVOD_SIZE, HOROVOD_LOCAL_RANK, HOROVOD_LOCAL_SIZE,
HOROVOD_CROSS_RANK and HOROVOD_HOSTNAME of each process, and HOROVOD_GLOO_RENDEZVOUS_ADDR and _PORT of the launcher. No
variable lists the hosts.
"""

from __future__ import annotations

from doctor.environment.launcher import LaunchedRank, RankLauncher
from doctor.environment.variables import EnvironmentVariables


class Horovodrun(RankLauncher):
    """Ranks that horovodrun starts without MPI."""

    name = "horovodrun"
    kind = "horovod"
    priority = 25
    markers = ("HOROVOD_RANK", "HOROVOD_SIZE")
    world_size_variable = "HOROVOD_SIZE"
    names_leader = False

    def read(self, variables: EnvironmentVariables) -> LaunchedRank:
        """See `RankLauncher.read`."""
        rank, world_size = variables.rank_and_world_size("HOROVOD_RANK", "HOROVOD_SIZE")
        local_rank = variables.number("HOROVOD_LOCAL_RANK", required=False)
        return LaunchedRank(
            launcher=self,
            launch_id=f"horovodrun {variables.text('HOROVOD_GLOO_RENDEZVOUS_PORT')}",
            rank=rank,
            world_size=world_size,
            local_rank=local_rank,
            local_world_size=variables.number("HOROVOD_LOCAL_SIZE", minimum=1, required=False),
            node_rank=variables.number("HOROVOD_CROSS_RANK", required=False),
            device=local_rank,
            leader_addresses=variables.addresses("MASTER_ADDR"),
            leader_port=variables.port("MASTER_PORT"),
            host_name=variables.text("HOROVOD_HOSTNAME"),
        )


LAUNCHER = Horovodrun()

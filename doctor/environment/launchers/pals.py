"""PALS, the ``mpiexec`` and ``aprun`` of HPE Cray systems with PBS.

Source: Open MPI, "Launching with HPE PALS"; PALS_RANKID beside PMI_RANK, PMI_SIZE and PMI_LOCAL_RANK on Polaris
(https://github.com/radical-cybertools/radical.pilot/issues/3022); no variable of PALS's own holds the number of ranks
(https://github.com/meta-pytorch/torchcomms/pull/79, which also reads PALS_LOCAL_SIZE).
"""

from __future__ import annotations

from doctor.environment.launcher import LaunchedRank, RankLauncher
from doctor.environment.variables import EnvironmentVariables


class Pals(RankLauncher):
    """Ranks that PALS starts."""

    name = "pals"
    title = "PALS mpiexec"
    priority = 35
    markers = ("PALS_RANKID", "PMI_SIZE")
    world_size_variable = "PMI_SIZE"
    names_leader = False

    def read(self, variables: EnvironmentVariables) -> LaunchedRank:
        """See `RankLauncher.read`."""
        rank, world_size = variables.rank_and_world_size("PALS_RANKID", "PMI_SIZE")
        local_rank = variables.number(variables.first_set("PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"), required=False)
        return LaunchedRank(
            launcher=self,
            launch_id=f"pals {variables.text(variables.first_set('PALS_APID', 'MASTER_PORT'))}",
            rank=rank,
            world_size=world_size,
            local_rank=local_rank,
            local_world_size=variables.number(
                variables.first_set("PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"), minimum=1, required=False
            ),
            node_rank=variables.number("PALS_NODEID", required=False),
            device=local_rank,
            leader_addresses=variables.addresses("MASTER_ADDR"),
            leader_port=variables.port("MASTER_PORT"),
        )


LAUNCHER = Pals()

"""Hydra's mpiexec: MPICH and Intel MPI.

Source: MPICH, src/pm/hydra: PMI_RANK, PMI_SIZE, MPI_LOCALRANKID and MPI_LOCALNRANKS of each process. No variable says
how rank 0 is reached. HYDRA_HOST_FILE (Hydra, "Environment settings") and I_MPI_HYDRA_HOST_FILE (Intel MPI, "Hydra
environment variables") name the hostfile.
"""

from __future__ import annotations

from doctor.environment.launcher import LaunchedRank, RankLauncher
from doctor.environment.variables import EnvironmentVariables


class Mpiexec(RankLauncher):
    """Ranks that the mpiexec of MPICH starts."""

    name = "mpiexec"
    kind = "mpich"
    priority = 30
    markers = ("PMI_RANK", "MPI_LOCALRANKID")
    world_size_variable = "PMI_SIZE"
    names_leader = False
    hostfile_variables = ("I_MPI_HYDRA_HOST_FILE", "HYDRA_HOST_FILE")
    daemon_marker = "MPI_LOCALRANKID"

    def read(self, variables: EnvironmentVariables) -> LaunchedRank:
        """See `RankLauncher.read`."""
        rank, world_size = variables.rank_and_world_size("PMI_RANK", "PMI_SIZE")
        local_rank = variables.number("MPI_LOCALRANKID", required=False)
        return LaunchedRank(
            launcher=self,
            launch_id=f"mpiexec {variables.text(variables.first_set('PMI_JOBID', 'MASTER_PORT'))}",
            rank=rank,
            world_size=world_size,
            local_rank=local_rank,
            local_world_size=variables.number("MPI_LOCALNRANKS", minimum=1, required=False),
            device=local_rank,
            leader_addresses=variables.addresses("MASTER_ADDR"),
            leader_port=variables.port("MASTER_PORT"),
        )


LAUNCHER = Mpiexec()

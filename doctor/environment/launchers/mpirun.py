"""Open MPI's mpirun.

Source: Open MPI, "Environment variables set for MPI applications" (OMPI_COMM_WORLD_*). PMIX_NAMESPACE and
PMIX_SERVER_URI2 are PMIx's; OMPI_MCA_orte_hnp_uri, the contact string of mpirun itself, is set by Open MPI 3 and 4.
The MCA parameters of the default hostfile: orte_default_hostfile of Open MPI 4 (``ompi_info``), prte_default_hostfile
of PRRTE in Open MPI 5 (prte_mca_base), each as a variable with the prefix of its project.
"""

from __future__ import annotations

import re

from doctor.environment.launcher import LaunchedRank, RankLauncher
from doctor.environment.variables import EnvironmentVariables

_GUESSED = "MASTER_ADDR is not set, so rank 0 was assumed on mpirun's host; pass -x MASTER_ADDR to be certain"


class Mpirun(RankLauncher):
    """Ranks that the mpirun of Open MPI starts."""

    name = "mpirun"
    kind = "openmpi"
    priority = 20
    markers = ("OMPI_COMM_WORLD_RANK",)
    world_size_variable = "OMPI_COMM_WORLD_SIZE"
    hostfile_variables = (
        "PRTE_MCA_prte_default_hostfile",
        "OMPI_MCA_prte_default_hostfile",
        "OMPI_MCA_orte_default_hostfile",
    )
    daemon_marker = "OMPI_COMM_WORLD_RANK"

    def read(self, variables: EnvironmentVariables) -> LaunchedRank:
        """See `RankLauncher.read`."""
        rank, world_size = variables.rank_and_world_size("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
        local_world_size = variables.number("OMPI_COMM_WORLD_LOCAL_SIZE", minimum=1, required=False)
        local_rank = variables.number("OMPI_COMM_WORLD_LOCAL_RANK", required=False)
        addresses, source = variables.addresses("MASTER_ADDR"), "MASTER_ADDR"
        notes: tuple[str, ...] = ()
        if not addresses and local_world_size == world_size:
            addresses = ("127.0.0.1",)
        elif not addresses:
            source = "OMPI_MCA_orte_hnp_uri"
            addresses = uri_addresses(variables.text(source) or variables.text("PMIX_SERVER_URI2"))
            notes = (_GUESSED,)
        job = variables.first_set("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")
        return LaunchedRank(
            launcher=self,
            launch_id=f"mpirun {variables.text(job)}",
            rank=rank,
            world_size=world_size,
            local_rank=local_rank,
            local_world_size=local_world_size,
            device=local_rank,
            leader_addresses=addresses,
            leader_address_source=source,
            leader_port=variables.port("MASTER_PORT"),
            notes=notes,
        )


def uri_addresses(uri: str) -> tuple[str, ...]:
    """The addresses in mpirun's contact string.

    >>> uri_addresses("123.0;tcp://10.0.0.1,10.1.0.1:4000;tcp6://[fd00::1]:4001")
    ('10.0.0.1', '10.1.0.1', 'fd00::1')
    """
    ipv4 = re.findall(r"tcp4?://([0-9.,]+):", uri)
    ipv6 = re.findall(r"tcp6://\[([0-9A-Fa-f:,]+)\]", uri)
    return tuple(address for group in ipv4 + ipv6 for address in group.split(",") if address)


LAUNCHER = Mpirun()

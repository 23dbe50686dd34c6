"""Cobalt, the scheduler of Argonne's earlier machines.

Source: Argonne Leadership Computing Facility, job scripts of Theta and ThetaGPU: COBALT_NODEFILE names a file with a
host in each line, COBALT_JOBSIZE is their number.
"""

from __future__ import annotations

from doctor.engine.sanitize import printable
from doctor.environment.host_list import in_files
from doctor.environment.mounted_rank_table import MountedRankTable
from doctor.environment.scheduler import Allocation, JobScheduler
from doctor.environment.variables import EnvironmentVariables


class CobaltScheduler(JobScheduler):
    """Jobs of Cobalt."""

    name = "cobalt"
    title = "Cobalt"
    priority = 14
    reaches_hosts = True

    def read(self, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
        """See `JobScheduler.read`."""
        if "COBALT_JOBID" not in variables and "COBALT_NODEFILE" not in variables:
            return None
        return Allocation(
            scheduler=self,
            job_id=printable(variables.text("COBALT_JOBID"), 40),
            host_lists=tuple(in_files(variables, "COBALT_NODEFILE")),
            node_count=variables.number("COBALT_JOBSIZE", minimum=1, required=False),
        )


SCHEDULER = CobaltScheduler()

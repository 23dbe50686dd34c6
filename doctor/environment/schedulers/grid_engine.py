"""Grid Engine: SGE, Univa and Altair Grid Engine, Open Cluster Scheduler.

Source: qsub(1), "ENVIRONMENTAL VARIABLES", and sge_pe(5): PE_HOSTFILE names a file with ``host slots queue
processors`` in each line; NHOSTS is the number of hosts. A job without a parallel environment has one host and no
such file.
"""

from __future__ import annotations

from doctor.engine.sanitize import printable
from doctor.environment.host_list import in_files
from doctor.environment.mounted_rank_table import MountedRankTable
from doctor.environment.scheduler import Allocation, JobScheduler
from doctor.environment.variables import EnvironmentVariables


class GridEngineScheduler(JobScheduler):
    """Jobs of Grid Engine."""

    name = "grid_engine"
    title = "Grid Engine"
    priority = 13
    reaches_hosts = True

    def read(self, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
        """See `JobScheduler.read`."""
        in_job = "JOB_ID" in variables and ("SGE_TASK_ID" in variables or "NHOSTS" in variables)
        if not in_job and "PE_HOSTFILE" not in variables:
            return None
        return Allocation(
            scheduler=self,
            job_id=printable(variables.text("JOB_ID"), 40),
            host_lists=tuple(in_files(variables, "PE_HOSTFILE")),
            node_count=variables.number("NHOSTS", minimum=1, required=False),
        )


SCHEDULER = GridEngineScheduler()

"""PJM: Fujitsu's Technical Computing Suite.

Source: job scripts of Fugaku's sister systems (Flow at Nagoya, ITO at Kyushu, Wisteria and Oakbridge at Tokyo), "Job
environment variables": PJM_O_NODEINF names a file with the name or address of a node in each line, which mpiexec
takes as its machine file; PJM_NODE is the number of nodes, PJM_JOBID the job.
"""

from __future__ import annotations

from doctor.engine.sanitize import printable
from doctor.environment.host_list import in_files
from doctor.environment.mounted_rank_table import MountedRankTable
from doctor.environment.scheduler import Allocation, JobScheduler
from doctor.environment.variables import EnvironmentVariables


class PjmScheduler(JobScheduler):
    """Jobs of Fujitsu's scheduler."""

    name = "pjm"
    title = "PJM"
    priority = 16
    reaches_hosts = True

    def read(self, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
        """See `JobScheduler.read`."""
        if "PJM_JOBID" not in variables and "PJM_O_NODEINF" not in variables:
            return None
        return Allocation(
            scheduler=self,
            job_id=printable(variables.text("PJM_JOBID"), 40),
            host_lists=tuple(in_files(variables, "PJM_O_NODEINF")),
            node_count=variables.number("PJM_NODE", minimum=1, required=False),
        )


SCHEDULER = PjmScheduler()

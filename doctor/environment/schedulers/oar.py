"""OAR.

Source: OAR 2.5, user documentation, "Description of environment variables": OAR_NODEFILE (and its other names
OAR_NODE_FILE, OAR_FILE_NODES, OAR_RESOURCE_FILE) names a file with a host for each reserved core; OAR_JOB_ID,
OAR_JOBID.
"""

from __future__ import annotations

from doctor.engine.sanitize import printable
from doctor.environment.host_list import in_files
from doctor.environment.mounted_rank_table import MountedRankTable
from doctor.environment.scheduler import Allocation, JobScheduler
from doctor.environment.variables import EnvironmentVariables

_FILES = ("OAR_NODEFILE", "OAR_NODE_FILE", "OAR_FILE_NODES", "OAR_RESOURCE_FILE")


class OarScheduler(JobScheduler):
    """Jobs of OAR."""

    name = "oar"
    title = "OAR"
    priority = 15
    reaches_hosts = True

    def read(self, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
        """See `JobScheduler.read`."""
        job = variables.first_set("OAR_JOB_ID", "OAR_JOBID")
        lists = tuple(in_files(variables, *_FILES))
        if job not in variables and not lists:
            return None
        return Allocation(scheduler=self, job_id=printable(variables.text(job), 40), host_lists=lists)


SCHEDULER = OarScheduler()

"""An Indexed Job of Kubernetes, also as part of a JobSet.

Source: Kubernetes, "Jobs", section "Completion mode": JOB_COMPLETION_INDEX of each pod. JobSet creates such jobs. No
variable says how many pods there are, nor their names.
"""

from __future__ import annotations

from doctor.environment.mounted_rank_table import MountedRankTable
from doctor.environment.scheduler import Allocation, JobScheduler
from doctor.environment.variables import EnvironmentVariables


class IndexedJobScheduler(JobScheduler):
    """Pods of an Indexed Job."""

    name = "indexed_job"
    title = "Indexed Job"
    priority = 90

    def read(self, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
        """See `JobScheduler.read`."""
        if "JOB_COMPLETION_INDEX" not in variables:
            return None
        index = variables.number("JOB_COMPLETION_INDEX", required=False)
        return Allocation(scheduler=self, node_rank=index, starts_every_host=True)


SCHEDULER = IndexedJobScheduler()

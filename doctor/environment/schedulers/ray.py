"""Ray.

Source: Ray, "Ray Jobs" and "Connecting to an existing Ray cluster" (RAY_ADDRESS); KubeRay sets RAY_CLUSTER_NAME and
FQ_RAY_IP in its pods. No variable lists the nodes of the cluster.
"""

from __future__ import annotations

from doctor.engine.sanitize import printable
from doctor.environment.mounted_rank_table import MountedRankTable
from doctor.environment.scheduler import Allocation, JobScheduler
from doctor.environment.variables import EnvironmentVariables


class RayScheduler(JobScheduler):
    """Processes that belong to a Ray cluster."""

    name = "ray"
    title = "Ray"
    priority = 95

    def read(self, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
        """See `JobScheduler.read`."""
        address = variables.text("RAY_ADDRESS")
        if address in ("", "local") and not any(name in variables for name in ("RAY_CLUSTER_NAME", "FQ_RAY_IP")):
            return None
        return Allocation(scheduler=self, job_id=printable(variables.text("RAY_CLUSTER_NAME"), 60))


SCHEDULER = RayScheduler()

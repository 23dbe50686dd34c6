"""LeaderWorkerSet, a group of pods on Kubernetes.

Source: lws.sigs.k8s.io, "Labels, Annotations and Environment Variables": LWS_LEADER_ADDRESS, LWS_GROUP_SIZE and
LWS_WORKER_INDEX, which is 0 on the leader. No variable lists the pods.
"""

from __future__ import annotations

from doctor.environment.mounted_rank_table import MountedRankTable
from doctor.environment.scheduler import Allocation, JobScheduler
from doctor.environment.variables import EnvironmentVariables


class LeaderWorkerSetScheduler(JobScheduler):
    """Pods of a LeaderWorkerSet."""

    name = "lws"
    title = "LeaderWorkerSet"
    priority = 60

    def read(self, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
        """See `JobScheduler.read`."""
        if "LWS_LEADER_ADDRESS" not in variables and "LWS_GROUP_SIZE" not in variables:
            return None
        node_count = variables.number("LWS_GROUP_SIZE", minimum=1, required=False)
        return Allocation(
            scheduler=self,
            node_rank=variables.number("LWS_WORKER_INDEX", required=False),
            node_count=node_count,
            starts_every_host=node_count != 1,
        )


SCHEDULER = LeaderWorkerSetScheduler()

"""Google Vertex AI custom training.

Source: Vertex AI, "Distributed training", section "Cluster description format": CLUSTER_SPEC is JSON with the
addresses of each worker pool and this replica's ``task``; CLOUD_ML_JOB_ID.
"""

from __future__ import annotations

from doctor.engine.sanitize import printable
from doctor.environment.host_list import in_variables
from doctor.environment.mounted_rank_table import MountedRankTable
from doctor.environment.scheduler import Allocation, JobScheduler
from doctor.environment.variables import EnvironmentVariables
from doctor.hosts import listed


class VertexScheduler(JobScheduler):
    """Replicas of a Vertex AI job."""

    name = "vertex"
    title = "Vertex AI"
    priority = 62

    def read(self, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
        """See `JobScheduler.read`."""
        if "CLUSTER_SPEC" not in variables:
            return None
        return Allocation(
            scheduler=self,
            job_id=printable(variables.text("CLOUD_ML_JOB_ID"), 60),
            host_lists=tuple(in_variables(variables, "CLUSTER_SPEC", parse=listed.cluster_spec)),
            node_rank=listed.cluster_position(variables.text("CLUSTER_SPEC")),
            starts_every_host=True,
        )


SCHEDULER = VertexScheduler()

"""AWS Batch.

Source: AWS Batch, "Job environment variables": AWS_BATCH_JOB_ID in every job; in multi-node parallel jobs
AWS_BATCH_JOB_NUM_NODES, AWS_BATCH_JOB_NODE_INDEX and AWS_BATCH_JOB_MAIN_NODE_INDEX. Each node runs the command, and no
variable lists the nodes.
"""

from __future__ import annotations

from doctor.engine.sanitize import printable
from doctor.environment.mounted_rank_table import MountedRankTable
from doctor.environment.scheduler import Allocation, JobScheduler
from doctor.environment.variables import EnvironmentVariables


class AwsBatchScheduler(JobScheduler):
    """Containers of an AWS Batch job."""

    name = "aws_batch"
    title = "AWS Batch"
    priority = 64

    def read(self, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
        """See `JobScheduler.read`."""
        if "AWS_BATCH_JOB_ID" not in variables and "AWS_BATCH_JOB_NUM_NODES" not in variables:
            return None
        several = "AWS_BATCH_JOB_NUM_NODES" in variables or "AWS_BATCH_JOB_NODE_INDEX" in variables
        node_count = variables.number("AWS_BATCH_JOB_NUM_NODES", minimum=1, required=False) if several else 1
        return Allocation(
            scheduler=self,
            job_id=printable(variables.text("AWS_BATCH_JOB_ID"), 60),
            node_rank=_node_rank(variables),
            node_count=node_count,
            starts_every_host=node_count != 1,
        )


def _node_rank(variables: EnvironmentVariables) -> int | None:
    """The main node is number 0, whatever its index."""
    index = variables.number("AWS_BATCH_JOB_NODE_INDEX", required=False)
    main = variables.number("AWS_BATCH_JOB_MAIN_NODE_INDEX", required=False) or 0
    if index is None or index > main:
        return index
    return 0 if index == main else index + 1


SCHEDULER = AwsBatchScheduler()

"""Azure Batch.

Source: Azure Batch, "Azure Batch runtime environment variables": for multi-instance tasks AZ_BATCH_NODE_LIST is
``10.0.0.4;10.0.0.5`` and AZ_BATCH_HOST_LIST ``10.0.0.4,10.0.0.5``; AZ_BATCH_JOB_ID, AZ_BATCH_TASK_ID. The application
command runs on the primary node alone. Other tasks have one node, and none of these lists.
"""

from __future__ import annotations

from doctor.engine.sanitize import printable
from doctor.environment.host_list import in_variables
from doctor.environment.mounted_rank_table import MountedRankTable
from doctor.environment.scheduler import Allocation, JobScheduler
from doctor.environment.variables import EnvironmentVariables
from doctor.hosts import listed


class AzureBatchScheduler(JobScheduler):
    """Tasks of Azure Batch, and Azure ML jobs that run in them."""

    name = "azure_batch"
    title = "Azure Batch"
    priority = 63
    reaches_hosts = True

    def read(self, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
        """See `JobScheduler.read`."""
        lists = tuple(in_variables(variables, "AZ_BATCH_HOST_LIST", "AZ_BATCH_NODE_LIST", parse=listed.words))
        if not lists and "AZ_BATCH_TASK_ID" not in variables:
            return None
        alone = not lists and "AZ_BATCH_MASTER_NODE" not in variables
        return Allocation(
            scheduler=self,
            job_id=printable(variables.text("AZ_BATCH_JOB_ID"), 60),
            host_lists=lists,
            node_count=1 if alone else variables.number("AZUREML_NODE_COUNT", minimum=1, required=False),
        )


SCHEDULER = AzureBatchScheduler()

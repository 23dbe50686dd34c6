"""Huawei Cloud ModelArts.

Source: ModelArts, "Managing environment variables of a training container", tables 2 and 7: MA_NUM_HOSTS,
VC_TASK_INDEX, VC_WORKER_NUM, and VC_WORKER_HOSTS, which lists the hosts in order.
"""

from __future__ import annotations

from doctor.engine.sanitize import printable
from doctor.environment.host_list import in_variables
from doctor.environment.mounted_rank_table import MountedRankTable
from doctor.environment.scheduler import Allocation, JobScheduler
from doctor.environment.variables import EnvironmentVariables


class ModelArtsScheduler(JobScheduler):
    """Containers of a ModelArts job, by the MA_ variables."""

    name = "modelarts"
    title = "ModelArts"
    priority = 20

    def read(self, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
        """See `JobScheduler.read`."""
        if "MA_NUM_HOSTS" not in variables and "MA_VJ_NAME" not in variables:
            return None
        node_count = variables.number("MA_NUM_HOSTS", minimum=1, required=False)
        index = variables.first_set("VC_TASK_INDEX", "VK_TASK_INDEX")
        return Allocation(
            scheduler=self,
            job_id=printable(variables.text("MA_VJ_NAME"), 60),
            host_lists=tuple(in_variables(variables, "VC_WORKER_HOSTS")),
            node_rank=0 if node_count == 1 else variables.number(index, required=False),
            node_count=node_count,
            starts_every_host=node_count != 1,
        )


SCHEDULER = ModelArtsScheduler()

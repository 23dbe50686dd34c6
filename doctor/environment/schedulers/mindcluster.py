"""MindCluster: the Ascend Operator on Kubernetes.

Source: MindCluster, "Ascend Operator environment variables": in a pod ``RANK`` is the number of the *host*,
``WORLD_SIZE`` counts NPUs, ``LOCAL_RANK`` is a list of them; for MindSpore ``MS_NODE_RANK`` and ``MS_LOCAL_WORKER``.
"""

from __future__ import annotations

from doctor.engine.sanitize import printable
from doctor.environment.mounted_rank_table import MountedRankTable
from doctor.environment.scheduler import Allocation, JobScheduler
from doctor.environment.variables import EnvironmentVariables

_HOST_VARIABLES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MS_ROLE",
    "MS_WORKER_NUM",
    "MS_SCHED_HOST",
)
_SET_BY_LAUNCHERS = ("TORCHELASTIC_RUN_ID", "MS_NODE_ID", "RANK_ID")
"""Variables that a launcher inside of the pod sets, and the operator does not."""


class MindClusterScheduler(JobScheduler):
    """Pods of a MindCluster job, by its variables or its mounted rank table."""

    name = "mindcluster"
    title = "MindCluster"
    priority = 30

    def read(self, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
        """See `JobScheduler.read`."""
        torch = "," in variables.text("LOCAL_RANK")
        mindspore = "MS_LOCAL_WORKER" in variables and "MS_NODE_RANK" in variables
        mounted = table is not None and not table.variable
        if not (torch or mindspore or mounted or "MINDX_TASK_ID" in variables):
            return None
        is_pod = (torch or mindspore) and not any(name in variables for name in _SET_BY_LAUNCHERS)
        node_count = _node_count(variables, mindspore)
        node_rank = variables.number("MS_NODE_RANK" if mindspore else "RANK", required=False)
        return Allocation(
            scheduler=self,
            job_id=printable(variables.text("MINDX_TASK_ID"), 60),
            node_rank=node_rank if is_pod else None,
            node_count=node_count,
            starts_every_host=is_pod and node_count != 1,
            is_scheduler_process=is_pod and variables.text("MS_ROLE") == "MS_SCHED",
            host_variables=_HOST_VARIABLES if is_pod else (),
        )


def _node_count(variables: EnvironmentVariables, mindspore: bool) -> int | None:
    """The number of NPUs of the job by that of each host; None where one is not known, or they do not divide."""
    world_size = variables.number("MS_WORKER_NUM" if mindspore else "WORLD_SIZE", required=False)
    per_host = variables.number("MS_LOCAL_WORKER" if mindspore else "LOCAL_WORLD_SIZE", required=False)
    if not world_size or not per_host or world_size % per_host:
        return None
    return world_size // per_host


SCHEDULER = MindClusterScheduler()

"""Kubeflow's training operator: a PyTorchJob.

Source: kubeflow/training-operator, pkg/controller.v1/pytorch/envvar.go: ``PET_NNODES`` and ``PET_NODE_RANK``, from
which torchrun takes its options; RANK and WORLD_SIZE count pods.
"""

from __future__ import annotations

from doctor.environment.mounted_rank_table import MountedRankTable
from doctor.environment.scheduler import Allocation, JobScheduler
from doctor.environment.variables import EnvironmentVariables


class KubeflowScheduler(JobScheduler):
    """Pods of a Kubeflow training job, by the PET_ variables."""

    name = "kubeflow"
    title = "Kubeflow"
    priority = 50

    def read(self, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
        """See `JobScheduler.read`."""
        if "PET_NNODES" not in variables or "PET_NODE_RANK" not in variables:
            return None
        node_count = variables.number("PET_NNODES", minimum=1, required=False)
        is_rank = "TORCHELASTIC_RUN_ID" in variables or "LOCAL_RANK" in variables
        return Allocation(
            scheduler=self,
            node_rank=variables.number("PET_NODE_RANK", required=False),
            node_count=node_count,
            starts_every_host=node_count != 1,
            host_variables=() if is_rank else ("RANK", "WORLD_SIZE"),
        )


SCHEDULER = KubeflowScheduler()

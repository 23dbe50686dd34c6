"""TF_CONFIG: a TFJob of Kubeflow, PAI DLC, or any platform that describes a cluster as TensorFlow does.

Source: TensorFlow, "Distributed training", section "Set up TF_CONFIG environment variable": JSON with ``cluster``, the
addresses of each kind of task, and ``task``, which of them this process is.
"""

from __future__ import annotations

from doctor.environment.host_list import in_variables
from doctor.environment.mounted_rank_table import MountedRankTable
from doctor.environment.scheduler import Allocation, JobScheduler
from doctor.environment.variables import EnvironmentVariables
from doctor.hosts import listed


class TensorFlowScheduler(JobScheduler):
    """Tasks of a cluster in TF_CONFIG."""

    name = "tensorflow"
    title = "TF_CONFIG"
    priority = 80

    def read(self, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
        """See `JobScheduler.read`."""
        if "TF_CONFIG" not in variables:
            return None
        return Allocation(
            scheduler=self,
            host_lists=tuple(in_variables(variables, "TF_CONFIG", parse=listed.cluster_spec)),
            node_rank=listed.cluster_position(variables.text("TF_CONFIG")),
            starts_every_host=True,
        )


SCHEDULER = TensorFlowScheduler()

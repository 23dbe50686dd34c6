"""Kubeflow's training operator: a PyTorchJob.

Source: kubeflow/training-operator, pkg/controller.v1/pytorch/envvar.go: ``PET_NNODES`` and ``PET_NODE_RANK``, from
which torchrun takes its options; RANK and WORLD_SIZE count pods. Older releases, and pytorch-operator, set
MASTER_ADDR, MASTER_PORT, WORLD_SIZE, RANK and PYTHONUNBUFFERED alone; the pods are NAME-master-0 and NAME-worker-N, and
MASTER_ADDR is NAME-master-0, or localhost in that pod. elastic.go: a job with an elasticPolicy has PET_RDZV_ENDPOINT
and PET_NNODES, such as ``2:4``, and no number of the pod but that in its name.
"""

from __future__ import annotations

import re

from doctor.environment.mounted_rank_table import MountedRankTable
from doctor.environment.scheduler import Allocation, JobScheduler
from doctor.environment.variables import EnvironmentVariables

_IN_A_POD = "KUBERNETES_SERVICE_HOST"
_POD = re.compile(r"-(master|worker)-([0-9]{1,5})\Z", re.ASCII)


class KubeflowScheduler(JobScheduler):
    """Pods of a PyTorchJob, by the PET_ variables or, of older releases, by the names of pods."""

    name = "kubeflow"
    title = "Kubeflow"
    priority = 50

    def read(self, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
        """See `JobScheduler.read`."""
        if "PET_NNODES" in variables and "PET_NODE_RANK" in variables:
            node_rank = variables.number("PET_NODE_RANK", required=False)
            node_count = variables.number("PET_NNODES", minimum=1, required=False)
        elif _is_elastic(variables):
            node_rank = int(_POD.search(variables.text("HOSTNAME"))[2])  # type: ignore[index] # by _is_elastic
            node_count = int(variables.text("PET_NNODES").partition(":")[0])
        elif _is_of_older_operator(variables):
            node_rank = variables.number("RANK", required=False)
            node_count = variables.number("WORLD_SIZE", minimum=1, required=False)
        else:
            return None
        is_rank = "TORCHELASTIC_RUN_ID" in variables or "LOCAL_RANK" in variables
        return Allocation(
            scheduler=self,
            node_rank=node_rank,
            node_count=node_count,
            starts_every_host=node_count != 1,
            host_variables=() if is_rank else ("RANK", "WORLD_SIZE"),
        )


def _is_elastic(variables: EnvironmentVariables) -> bool:
    pod, count = _POD.search(variables.text("HOSTNAME")), variables.text("PET_NNODES")
    known = _IN_A_POD in variables and "PET_RDZV_ENDPOINT" in variables
    return bool(known and pod and re.fullmatch(r"[1-9][0-9]{0,4}(:[0-9]{1,5})?", count, re.ASCII))


def _is_of_older_operator(variables: EnvironmentVariables) -> bool:
    names = (_IN_A_POD, "PYTHONUNBUFFERED", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")
    launched = any(name in variables for name in ("TORCHELASTIC_RUN_ID", "LOCAL_RANK", "DEVICE_ID"))
    if launched or not all(name in variables for name in names):
        return False
    master = variables.text("MASTER_ADDR")
    if master == "localhost":
        master = variables.text("HOSTNAME")
    pod = _POD.search(master)
    return bool(pod and pod[0] == "-master-0")


SCHEDULER = KubeflowScheduler()

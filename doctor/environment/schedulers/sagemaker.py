"""Amazon SageMaker training jobs.

Source: aws/sagemaker-training-toolkit, "Environment variables": SM_HOSTS is a JSON list of all hosts, SM_CURRENT_HOST
one of them; SageMaker sets TRAINING_JOB_NAME.
"""

from __future__ import annotations

from doctor.engine.sanitize import printable
from doctor.environment.host_list import in_variables
from doctor.environment.mounted_rank_table import MountedRankTable
from doctor.environment.scheduler import Allocation, JobScheduler
from doctor.environment.variables import EnvironmentVariables
from doctor.hosts import listed
from doctor.hosts.nodeset import InventoryError


class SageMakerScheduler(JobScheduler):
    """Containers of a SageMaker training job."""

    name = "sagemaker"
    title = "SageMaker"
    priority = 61

    def read(self, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
        """See `JobScheduler.read`."""
        if "SM_HOSTS" not in variables and "SM_CURRENT_HOST" not in variables:
            return None
        hosts = _hosts(variables.text("SM_HOSTS"))
        host_name = variables.text("SM_CURRENT_HOST")
        return Allocation(
            scheduler=self,
            job_id=printable(variables.text("TRAINING_JOB_NAME"), 60),
            host_lists=tuple(in_variables(variables, "SM_HOSTS", parse=listed.json_list)),
            node_rank=hosts.index(host_name) if host_name in hosts else None,
            node_count=len(hosts) or None,
            starts_every_host=len(hosts) != 1,
        )


def _hosts(text: str) -> list[str]:
    try:
        return [line.host for line in listed.json_list(text, "SM_HOSTS")]
    except InventoryError:
        return []


SCHEDULER = SageMakerScheduler()

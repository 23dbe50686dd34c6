"""Huawei Donau Scheduler, of the HPC sites with Kunpeng and Ascend.

Source: published job scripts of ``dsub`` (no page of the vendor is public): CCS_ALLOC_FILE names a file whose lines
begin with a host and its number of slots, from which scripts write Open MPI's ``host slots=N``; CCS_JOB_ID,
BATCH_JOB_ID.
"""

from __future__ import annotations

from doctor.engine.sanitize import printable
from doctor.environment.host_list import in_files
from doctor.environment.mounted_rank_table import MountedRankTable
from doctor.environment.scheduler import Allocation, JobScheduler
from doctor.environment.variables import EnvironmentVariables


class DonauScheduler(JobScheduler):
    """Jobs of Donau."""

    name = "donau"
    title = "Donau"
    priority = 17
    reaches_hosts = True

    def read(self, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
        """See `JobScheduler.read`."""
        if "CCS_JOB_ID" not in variables and "CCS_ALLOC_FILE" not in variables:
            return None
        return Allocation(
            scheduler=self,
            job_id=printable(variables.text(variables.first_set("CCS_JOB_ID", "BATCH_JOB_ID")), 40),
            host_lists=tuple(in_files(variables, "CCS_ALLOC_FILE")),
        )


SCHEDULER = DonauScheduler()

"""IBM Spectrum LSF.

Source: LSF, "Environment variables set for job execution": LSB_DJOB_HOSTFILE names a file with a host for each slot,
LSB_MCPU_HOSTS is ``hosta 2 hostb 4``, LSB_HOSTS repeats a host for each slot and is not set for long lists.
LSB_BATCH_JID and LSB_JOBINDEX tell the members of a job array apart.
"""

from __future__ import annotations

from doctor.engine.sanitize import printable
from doctor.environment.host_list import in_files, in_variables
from doctor.environment.mounted_rank_table import MountedRankTable
from doctor.environment.scheduler import Allocation, JobScheduler
from doctor.environment.variables import EnvironmentVariables
from doctor.hosts import listed


class LsfScheduler(JobScheduler):
    """Jobs of LSF."""

    name = "lsf"
    title = "LSF"
    priority = 12
    reaches_hosts = True

    def read(self, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
        """See `JobScheduler.read`."""
        lists = (
            *in_files(variables, "LSB_DJOB_HOSTFILE"),
            *in_variables(variables, "LSB_MCPU_HOSTS", parse=listed.pairs),
            *in_variables(variables, "LSB_HOSTS", parse=listed.words),
        )
        if not lists and "LSB_JOBID" not in variables:
            return None
        return Allocation(scheduler=self, job_id=printable(variables.text("LSB_JOBID"), 40), host_lists=lists)


SCHEDULER = LsfScheduler()

"""PBS: PBS Professional, OpenPBS and TORQUE.

Source: qsub(1B) of OpenPBS, "ENVIRONMENT VARIABLES", and the PBS Professional User's Guide, "The Job's Node File":
PBS_NODEFILE names a file with a line for each MPI process, a host is repeated. TORQUE, "Exported batch environment
variables": the same, and PBS_NUM_NODES.
"""

from __future__ import annotations

from doctor.engine.sanitize import printable
from doctor.environment.host_list import in_files
from doctor.environment.mounted_rank_table import MountedRankTable
from doctor.environment.scheduler import Allocation, JobScheduler
from doctor.environment.variables import EnvironmentVariables


class PbsScheduler(JobScheduler):
    """Batch and interactive jobs of PBS."""

    name = "pbs"
    title = "PBS"
    priority = 11
    reaches_hosts = True

    def read(self, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
        """See `JobScheduler.read`."""
        if not any(name in variables for name in ("PBS_JOBID", "PBS_NODEFILE", "PBS_ENVIRONMENT")):
            return None
        return Allocation(
            scheduler=self,
            job_id=printable(variables.text("PBS_JOBID"), 60),
            host_lists=tuple(in_files(variables, "PBS_NODEFILE")),
            node_count=variables.number("PBS_NUM_NODES", minimum=1, required=False),
        )


SCHEDULER = PbsScheduler()

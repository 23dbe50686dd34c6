"""Flux.

Source: flux-environment(7): FLUX_URI is set in a batch script, and FLUX_JOB_ID, FLUX_JOB_NNODES, FLUX_TASK_RANK in
the tasks of ``flux run``. No variable lists hosts: flux-hostlist(1) prints those of the job, else of the instance;
flux-getattr(1) with ``hostlist`` those of the instance, also in versions without flux-hostlist.
"""

from __future__ import annotations

from doctor.engine.sanitize import printable
from doctor.environment.host_list import HostList
from doctor.environment.mounted_rank_table import MountedRankTable
from doctor.environment.scheduler import Allocation, JobScheduler
from doctor.environment.variables import EnvironmentVariables
from doctor.hosts import listed

_MARKS = ("FLUX_URI", "FLUX_JOB_ID", "FLUX_ENCLOSING_ID")


class FluxScheduler(JobScheduler):
    """Batch scripts of Flux, and tasks of ``flux run``."""

    name = "flux"
    title = "Flux"
    priority = 18
    reaches_hosts = True

    def read(self, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
        """See `JobScheduler.read`."""
        if not any(name in variables for name in _MARKS):
            return None
        commands: list[tuple[str, ...]] = [("flux", "hostlist")]
        if "FLUX_JOB_ID" not in variables:
            commands.append(("flux", "getattr", "hostlist"))
        return Allocation(
            scheduler=self,
            job_id=printable(variables.text(variables.first_set("FLUX_JOB_ID", "FLUX_ENCLOSING_ID")), 40),
            host_lists=tuple(
                HostList(" ".join(command), command=command, parse=listed.node_set_of_slots) for command in commands
            ),
            node_count=variables.number("FLUX_JOB_NNODES", minimum=1, required=False),
        )


SCHEDULER = FluxScheduler()

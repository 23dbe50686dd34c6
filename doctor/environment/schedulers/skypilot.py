"""SkyPilot.

Source: SkyPilot, "Distributed Multi-Node Jobs", section "Environment variables": the command runs on every node;
SKYPILOT_NODE_IPS has an address in each line, SKYPILOT_NODE_RANK is this node's place in it, SKYPILOT_NUM_NODES their
number.
"""

from __future__ import annotations

from doctor.engine.sanitize import printable
from doctor.environment.host_list import in_variables
from doctor.environment.mounted_rank_table import MountedRankTable
from doctor.environment.scheduler import Allocation, JobScheduler
from doctor.environment.variables import EnvironmentVariables
from doctor.hosts import listed


class SkyPilotScheduler(JobScheduler):
    """Nodes of a SkyPilot task."""

    name = "skypilot"
    title = "SkyPilot"
    priority = 9

    def read(self, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
        """See `JobScheduler.read`. It runs inside of Slurm and Kubernetes too, and there knows the task."""
        if "SKYPILOT_NODE_IPS" not in variables and "SKYPILOT_NODE_RANK" not in variables:
            return None
        node_count = variables.number("SKYPILOT_NUM_NODES", minimum=1, required=False)
        return Allocation(
            scheduler=self,
            job_id=printable(variables.text("SKYPILOT_TASK_ID"), 60),
            host_lists=tuple(in_variables(variables, "SKYPILOT_NODE_IPS", parse=listed.words)),
            node_rank=variables.number("SKYPILOT_NODE_RANK", required=False),
            node_count=node_count,
            starts_every_host=node_count != 1,
        )


SCHEDULER = SkyPilotScheduler()

"""Tencent TI.

Source: published job scripts (no page of the vendor lists them): NODE_IP_LIST and NODE_IP_SLOT_LIST are
``10.0.0.4:8,10.0.0.5:8``, from which scripts write a hostfile or give to ``mpirun -H``; HOST_NUM, INDEX and CHIEF_IP
are the number of nodes, this node, and the first one's address. The command runs on every node.
"""

from __future__ import annotations

from doctor.environment.host_list import in_variables
from doctor.environment.mounted_rank_table import MountedRankTable
from doctor.environment.scheduler import Allocation, JobScheduler
from doctor.environment.variables import EnvironmentVariables
from doctor.hosts import listed


class TencentScheduler(JobScheduler):
    """Nodes of a Tencent TI task."""

    name = "tencent"
    title = "Tencent TI"
    priority = 66

    def read(self, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
        """See `JobScheduler.read`."""
        lists = tuple(in_variables(variables, "NODE_IP_SLOT_LIST", "NODE_IP_LIST", parse=listed.words))
        if not lists and not ("CHIEF_IP" in variables and "HOST_NUM" in variables):
            return None
        node_count = variables.number("HOST_NUM", minimum=1, required=False)
        return Allocation(
            scheduler=self,
            host_lists=lists,
            node_rank=variables.number("INDEX", required=False),
            node_count=node_count,
            starts_every_host="INDEX" in variables and node_count != 1,
        )


SCHEDULER = TencentScheduler()

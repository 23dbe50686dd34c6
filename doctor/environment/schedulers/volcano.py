"""Volcano, a batch scheduler for Kubernetes.

Source: Volcano, user guides of its job plugins *env* (``VC_TASK_INDEX``, a number within one kind of task) and *svc*
(``VC_<TASK>_HOSTS``, ``VC_<TASK>_NUM``; the pod's name is its host name). ModelArts sets the same variables, and more.
"""

from __future__ import annotations

import re

from doctor.environment.host_list import HostList
from doctor.environment.mounted_rank_table import MountedRankTable
from doctor.environment.scheduler import Allocation, JobScheduler
from doctor.environment.variables import EnvironmentVariables


class VolcanoScheduler(JobScheduler):
    """Pods of a Volcano job, by the VC_ variables."""

    name = "volcano"
    title = "Volcano"
    priority = 40

    def read(self, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
        """See `JobScheduler.read`."""
        names = [name for name in variables.environ if re.fullmatch(r"VC_[A-Z0-9_]+_HOSTS", name)]
        if "VC_TASK_INDEX" not in variables and not names:
            return None
        names.sort(key=lambda name: (name != "VC_MASTER_HOSTS", name))
        hosts = [host for name in names for host in variables.text(name).split(",") if host]
        node_rank = _position(hosts, variables.text("HOSTNAME"))
        if node_rank is None and len(names) == 1:
            node_rank = variables.number("VC_TASK_INDEX", required=False)
        return Allocation(
            scheduler=self,
            host_lists=(HostList(" and ".join(names), text=",".join(hosts)),) if hosts else (),
            node_rank=node_rank,
            node_count=len(hosts) or None,
            starts_every_host=len(hosts) != 1,
        )


def _position(hosts: list[str], host_name: str) -> int | None:
    """This host's index in the list, by the first part of its name."""
    short_names = [host.partition(".")[0] for host in hosts]
    short_name = host_name.partition(".")[0]
    return short_names.index(short_name) if host_name and short_name in short_names else None


SCHEDULER = VolcanoScheduler()

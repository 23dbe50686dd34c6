"""Volcengine's machine learning platform.

Source: Volcengine, machine learning platform, "Environment variables of custom training": the command runs on every
node; MLP_ROLE and MLP_ROLE_INDEX say which node this is; for each role MLP_<ROLE>_NUM, MLP_<ROLE>_ALL_HOSTS
(``10.128.97.74,10.128.96.17``) and MLP_<ROLE>_<INDEX>_HOST; MLP_TASK_ID.
"""

from __future__ import annotations

from doctor.engine.sanitize import printable
from doctor.environment.host_list import HostList
from doctor.environment.mounted_rank_table import MountedRankTable
from doctor.environment.scheduler import Allocation, JobScheduler
from doctor.environment.variables import EnvironmentVariables
from doctor.hosts import listed

_ROLES = ("CHIEF", "WORKER", "PS", "SERVER", "SCHEDULER", "EVALUATOR")
_MOST_NODES = 10_000


class VolcengineScheduler(JobScheduler):
    """Nodes of a Volcengine task."""

    name = "volcengine"
    title = "Volcengine"
    priority = 65

    def read(self, variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
        """See `JobScheduler.read`."""
        if "MLP_TASK_ID" not in variables and "MLP_WORKER_NUM" not in variables:
            return None
        roles = [role for role in _ROLES if f"MLP_{role}_NUM" in variables]
        counts = {role: variables.number(f"MLP_{role}_NUM", maximum=_MOST_NODES, required=False) or 0 for role in roles}
        names = {role: _names(variables, role, count) for role, count in counts.items()}
        complete = bool(names) and all(names[role] or not counts[role] for role in roles)
        text = ",".join(variables.text(name) for role in roles for name in names[role])
        source = " and ".join(name for role in roles for name in names[role][:1])
        node_count = sum(counts.values()) or None
        return Allocation(
            scheduler=self,
            job_id=printable(variables.text("MLP_TASK_ID"), 60),
            host_lists=(HostList(source, text=text, parse=listed.words),) if complete and text else (),
            node_rank=_node_rank(variables, counts),
            node_count=node_count,
            starts_every_host=node_count != 1,
        )


def _names(variables: EnvironmentVariables, role: str, count: int) -> list[str]:
    """The variables with the hosts of a role; empty where not all are set."""
    if f"MLP_{role}_ALL_HOSTS" in variables:
        return [f"MLP_{role}_ALL_HOSTS"]
    names = [f"MLP_{role}_{index}_HOST" for index in range(count)]
    return names if all(name in variables for name in names) else []


def _node_rank(variables: EnvironmentVariables, counts: dict[str, int]) -> int | None:
    """The place among the nodes of all roles."""
    role = variables.text("MLP_ROLE", "WORKER").upper()
    index = variables.number("MLP_ROLE_INDEX", required=False)
    if index is None or role not in counts:
        return index
    roles = list(counts)
    return sum(counts[before] for before in roles[: roles.index(role)]) + index


SCHEDULER = VolcengineScheduler()

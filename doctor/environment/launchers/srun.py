"""Slurm's srun.

Source: srun(1), "OUTPUT ENVIRONMENT VARIABLES", and the variables that Slurm 22.05 sets. A batch script has
SLURM_PROCID too, and no step.
"""

from __future__ import annotations

import re

from doctor.engine.sanitize import printable
from doctor.environment.launcher import LaunchedRank, RankLauncher
from doctor.environment.variables import EnvironmentVariables

_MOST_NODES = 100_000


class Srun(RankLauncher):
    """Ranks that are the tasks of a Slurm step."""

    name = "srun"
    priority = 50
    markers = ("SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
    world_size_variable = "SLURM_STEP_NUM_TASKS"
    scheduler = "slurm"

    def read(self, variables: EnvironmentVariables) -> LaunchedRank:
        """See `RankLauncher.read`."""
        rank, world_size = variables.rank_and_world_size("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
        local_rank = variables.number("SLURM_LOCALID", required=False)
        node_rank = variables.number("SLURM_NODEID", required=False)
        counts = tasks_per_node(variables.text("SLURM_STEP_TASKS_PER_NODE"))
        addresses, source = variables.addresses("MASTER_ADDR"), "MASTER_ADDR"
        if not addresses:
            addresses, source = first_host(variables.text("SLURM_STEP_NODELIST")), "SLURM_STEP_NODELIST"
        return LaunchedRank(
            launcher=self,
            launch_id=_launch_id(variables),
            rank=rank,
            world_size=world_size,
            local_rank=local_rank,
            local_world_size=counts[node_rank] if node_rank is not None and node_rank < len(counts) else None,
            node_rank=node_rank,
            device=local_rank,
            leader_addresses=addresses,
            leader_address_source=source,
            leader_port=variables.port("MASTER_PORT"),
            host_name=variables.text("SLURMD_NODENAME"),
        )

    def describe(self, rank_of_world: str, variables: EnvironmentVariables) -> list[str]:
        """See `RankLauncher.describe`."""
        return [f"step {printable(variables.text('SLURM_STEP_ID'), 20)}", f"task {rank_of_world}"]


def _launch_id(variables: EnvironmentVariables) -> str:
    """The step, and the port of its srun: two clusters that share a host may number their jobs alike."""
    step = f"srun {variables.text('SLURM_JOB_ID')}.{variables.text('SLURM_STEP_ID')}"
    return f"{step} {variables.text('SLURM_STEP_LAUNCHER_PORT')}".strip()


def tasks_per_node(text: str) -> list[int]:
    """Slurm's ``2(x3),1`` as a number a node; empty where it is no such list.

    >>> tasks_per_node("2(x3),1")
    [2, 2, 2, 1]
    """
    counts: list[int] = []
    for part in text.split(",") if text else ():
        match = re.fullmatch(r"([0-9]{1,6})(?:\(x([0-9]{1,6})\))?", part.strip(), re.ASCII)
        if not match or len(counts) > _MOST_NODES:
            return []
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def first_host(nodes: str) -> tuple[str, ...]:
    """The first of Slurm's list of nodes, where task 0 runs; empty where there is none.

    >>> first_host("n[003-007,9],m1"), first_host("r[1-2]n[05-08]"), first_host("login1")
    (('n003',), ('r1n05',), ('login1',))
    """
    match = re.match(r"((?:[^,\[\]]|\[[^\]]*\])+)", nodes)
    if not match:
        return ()
    name = re.sub(r"\[([^\[\]]*)\]", lambda ranges: re.split(r"[-,]", ranges[1], maxsplit=1)[0], match[1])
    return (name,) if name else ()


LAUNCHER = Srun()

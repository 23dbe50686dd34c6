"""RANK and WORLD_SIZE, or RANK_ID and RANK_SIZE, that a script sets itself, such as a loop in a shell.

Source: PyTorch, torch.distributed, "Environment variable initialization" (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT);
Ascend, training scripts that are started with a rank table (RANK_ID, RANK_SIZE, DEVICE_ID, RANK_TABLE_FILE). DEVICE_ID
is a device's number and not the rank within the host.
"""

from __future__ import annotations

import re

from doctor.environment.launcher import LaunchedRank, RankLauncher
from doctor.environment.variables import EnvironmentVariables

_SIZE_VARIABLES = {"RANK": ("WORLD_SIZE", "RANK_SIZE"), "RANK_ID": ("RANK_SIZE", "WORLD_SIZE")}


class ByHand(RankLauncher):
    """Ranks whose variables a script sets itself."""

    name = "environment"
    kind = "shell"
    title = "a loop in a shell"
    by_hand = True

    def read(self, variables: EnvironmentVariables) -> LaunchedRank:
        """See `RankLauncher.read`."""
        rank_variable = variables.first_set("RANK", "RANK_ID")
        size_variable = variables.first_set(*_SIZE_VARIABLES[rank_variable])
        rank, world_size = variables.rank_and_world_size(rank_variable, size_variable)
        port = variables.port("MASTER_PORT")
        return LaunchedRank(
            launcher=self,
            launch_id=f"environment {port}",
            rank=rank,
            world_size=world_size,
            local_rank=variables.number("LOCAL_RANK", required=False),
            local_world_size=variables.number("LOCAL_WORLD_SIZE", minimum=1, required=False),
            device=variables.number(variables.first_set("DEVICE_ID", "LOCAL_RANK"), required=False),
            leader_addresses=variables.addresses("MASTER_ADDR") or ("127.0.0.1",),
            leader_port=port,
        )


def world_size_by_hand(variables: EnvironmentVariables) -> int:
    """The world size in variables of no launcher; 0 without a rank, and 1 where it is unset or no number.

    >>> world_size_by_hand(EnvironmentVariables({"RANK": "0", "WORLD_SIZE": "4"}))
    4
    """
    for rank, world_size in (("RANK", "WORLD_SIZE"), ("RANK_ID", "RANK_SIZE")):
        if rank in variables:
            size = variables.text(world_size)
            return max(int(size), 1) if re.fullmatch(r"[0-9]{1,9}", size, re.ASCII) else 1
    return 0


def world_size_without_rank(variables: EnvironmentVariables) -> int:
    """A world size that a script sets before it starts ranks; 0 where there is none, or where ranks fit this host.

    >>> world_size_without_rank(EnvironmentVariables({"WORLD_SIZE": "16"}))
    16
    """
    local_sizes = ("LOCAL_WORLD_SIZE", "LOCAL_RANK", "RANK", "RANK_ID")
    if any(name in variables for name in local_sizes):
        return 0
    sizes = (variables.text(name) for name in ("WORLD_SIZE", "RANK_SIZE"))
    return next((int(size) for size in sizes if re.fullmatch(r"[0-9]{1,9}", size, re.ASCII)), 0)


def has_device_of_table(variables: EnvironmentVariables) -> bool:
    """Whether a script gave this process a device of a rank table, and no rank."""
    return "DEVICE_ID" in variables and "RANK_TABLE_FILE" in variables


LAUNCHER = ByHand()

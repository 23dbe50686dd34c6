"""The table of launchers, and what of Open MPI, Slurm, MindSpore and scripts no column of it can say."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import msgspec

from doctor.engine.toml_compat import read_table
from doctor.environment.launcher import LaunchedRank, RankLauncher
from doctor.environment.variables import EnvironmentVariables
from doctor.job.variables import MINDSPORE_PORT

_GUESSED = "MASTER_ADDR is not set, so rank 0 was assumed on mpirun's host; pass -x MASTER_ADDR to be certain"
_INHERITED = ("MASTER_ADDR", "MASTER_PORT", "DEVICE_ID")
_MOST_NODES = 100_000


class _Table(msgspec.Struct, forbid_unknown_fields=True):
    launcher: tuple[RankLauncher, ...]


@cache
def launchers() -> tuple[RankLauncher, ...]:
    """All launchers, innermost first."""
    return read_table(Path(__file__).with_suffix(".toml"), _Table).launcher


def by_hand() -> RankLauncher:
    """A script that sets the variables of ranks itself."""
    return next(launcher for launcher in launchers() if launcher.by_hand)


def read_launch(launcher: RankLauncher, variables: EnvironmentVariables) -> LaunchedRank:
    """This process by its variables. Never raises: unusable values are kept in ``variables.problems``."""
    if launcher.by_hand and "RANK" not in variables:
        size = " ".join(reversed(launcher.world_size.split()))
        launched = msgspec.structs.replace(launcher, world_size=size).read(variables)
        return msgspec.structs.replace(launched, launcher=launcher)
    hook = _HOOKS.get(launcher.name)
    launched = launcher.read(variables)
    return hook(launched, variables) if hook else launched


def _mpirun(launched: LaunchedRank, variables: EnvironmentVariables) -> LaunchedRank:
    """Rank 0 is assumed at the address of mpirun itself where no variable says it."""
    if launched.leader_addresses:
        return launched
    if launched.local_world_size == launched.world_size:
        return msgspec.structs.replace(launched, leader_addresses=("127.0.0.1",))
    source = "OMPI_MCA_orte_hnp_uri"
    addresses = uri_addresses(variables.text(source) or variables.text("PMIX_SERVER_URI2"))
    return msgspec.structs.replace(
        launched, leader_addresses=addresses, leader_address_source=source, notes=(_GUESSED,)
    )


def _msrun(launched: LaunchedRank, variables: EnvironmentVariables) -> LaunchedRank:
    port = launched.leader_port or MINDSPORE_PORT
    return msgspec.structs.replace(launched, leader_port=port, launch_id=f"msrun {port} {launched.world_size}")


def _srun(launched: LaunchedRank, variables: EnvironmentVariables) -> LaunchedRank:
    """Slurm says how many tasks each node has; task 0 runs on the first."""
    counts, node = tasks_per_node(variables.text("SLURM_STEP_TASKS_PER_NODE")), launched.node_rank
    local_world_size = counts[node] if node is not None and node < len(counts) else None
    launched = msgspec.structs.replace(launched, local_world_size=local_world_size)
    if launched.leader_addresses:
        return launched
    source = "SLURM_STEP_NODELIST"
    addresses = first_host(variables.text(source))
    return msgspec.structs.replace(launched, leader_addresses=addresses, leader_address_source=source)


_HOOKS: Mapping[str, Callable[[LaunchedRank, EnvironmentVariables], LaunchedRank]] = {
    "mpirun": _mpirun,
    "msrun": _msrun,
    "srun": _srun,
}


def read_spawned(environ: Mapping[str, str], rank: int, world_size: int) -> LaunchedRank:
    """A process that a program starts with its rank as an argument; it meets by the program's own variables."""
    inherited = {name: environ[name] for name in _INHERITED if name in environ}
    numbers = {"RANK": str(rank), "WORLD_SIZE": str(world_size), "LOCAL_RANK": str(rank)}
    variables = EnvironmentVariables({**inherited, **numbers})
    launched = read_launch(by_hand(), variables)
    return msgspec.structs.replace(
        launched,
        launcher=next(launcher for launcher in launchers() if launcher.name == "spawn"),
        launch_id=f"spawn {launched.launch_id}",
        launchers=("spawn",),
        problems=tuple(dict.fromkeys(variables.problems)),
    )


def uri_addresses(uri: str) -> tuple[str, ...]:
    """The addresses in mpirun's contact string.

    >>> uri_addresses("123.0;tcp://10.0.0.1,10.1.0.1:4000;tcp6://[fd00::1]:4001")
    ('10.0.0.1', '10.1.0.1', 'fd00::1')
    """
    ipv4 = re.findall(r"tcp4?://([0-9.,]+):", uri)
    ipv6 = re.findall(r"tcp6://\[([0-9A-Fa-f:,]+)\]", uri)
    return tuple(address for group in ipv4 + ipv6 for address in group.split(",") if address)


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
    sizes = (variables.text(name) for name in ("WORLD_SIZE", "RANK_SIZE", "MS_WORKER_NUM"))
    return next((int(size) for size in sizes if re.fullmatch(r"[0-9]{1,9}", size, re.ASCII)), 0)

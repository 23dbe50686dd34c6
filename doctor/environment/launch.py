"""The rank of this process, from the innermost launcher and, if needed, from the rank table. Pure.

Launchers nest: torchrun under srun, mpirun in a batch script. The innermost started the process, so its numbers count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from doctor.engine.sanitize import printable
from doctor.engine.texts import filled, joined
from doctor.environment.launcher import LaunchedRank, RankLauncher
from doctor.environment.launchers import by_hand, launchers, read_launch, world_size_by_hand
from doctor.environment.mounted_rank_table import MountedRankTable
from doctor.environment.scheduler import Allocation
from doctor.environment.variables import RANK_VARIABLES, EnvironmentVariables, or_unknown

_WORLD_SIZE_VARIABLES = ("RANK_SIZE", "WORLD_SIZE")


def find_launch(
    variables: EnvironmentVariables, allocation: Allocation | None, table: MountedRankTable | None
) -> LaunchedRank | None:
    """This process in the innermost launch of more than one process; None where there is none."""
    host_variables = allocation.host_variables if allocation else ()
    environ = {name: value for name, value in variables.environ.items() if name not in host_variables}
    inner = list(launchers())
    launch = innermost_launch(environ, inner)
    while launch and launch.world_size == 1 and not launch.launcher.by_hand:
        environ = {name: value for name, value in environ.items() if name not in RANK_VARIABLES}
        inner.remove(launch.launcher)
        launch = innermost_launch(environ, inner)
    if launch is None or (launch.world_size == 1 and not launch.problems):
        return None
    return complete_from_table(launch, table)


def find_rank_to_be(variables: EnvironmentVariables) -> LaunchedRank | None:
    """The rank that a program of ranks is, if it starts as this process; also the only one of its launch."""
    return innermost_launch(variables.environ, [launcher for launcher in launchers() if launcher.names_leader])


def innermost_launch(environ: Mapping[str, str], candidates: Sequence[RankLauncher] = ()) -> LaunchedRank | None:
    """This process as its innermost launcher describes it; None without a launcher. Never raises.

    ``candidates``: those of the table that count; empty: all.
    """
    variables = EnvironmentVariables(environ)
    present = [launcher for launcher in candidates or launchers() if launcher.is_present(variables)]
    size_by_hand = 0 if any(launcher.sets_rank_variables for launcher in present) else world_size_by_hand(variables)
    if not present and not size_by_hand:
        return None
    # Where a launcher started a single process, a loop in a shell has started the others.
    inner = [launcher for launcher in present if size_by_hand < 2 or variables.text(launcher.world_size) != "1"]
    launcher = inner[0] if inner else by_hand()
    launch = read_launch(launcher, variables)
    return msgspec.structs.replace(
        launch,
        launchers=(*(launcher.name for launcher in present), *((by_hand().name,) if size_by_hand else ())),
        notes=(*launch.notes, *_nesting(launcher, present)),
        contradictions=() if launcher.by_hand else contradictions(variables, launch),
        problems=tuple(dict.fromkeys(variables.problems)),
    )


def contradictions(variables: EnvironmentVariables, launch: LaunchedRank) -> tuple[str, ...]:
    """A script that reads RANK would take itself for another rank than the launcher does."""
    numbers = {} if launch.is_scheduler_process else {"RANK": launch.rank, "WORLD_SIZE": launch.world_size}
    different = [
        filled("{0} is {1}", name, printable(variables.text(name), 40))
        for name, number in numbers.items()
        if number is not None and variables.text(name, str(number)) != str(number)
    ]
    if not different:
        return ()
    actual = filled(
        "{0} made this rank {1} of {2}", launch.launcher.name, or_unknown(launch.rank), or_unknown(launch.world_size)
    )
    return (
        filled("{0}, but {1}: a program that reads the variables is another rank", joined(" and ", different), actual),
    )


def complete_from_table(launch: LaunchedRank, table: MountedRankTable | None) -> LaunchedRank:
    """With the numbers that the rank table has and the launcher's variables lack."""
    position = table.position(launch.rank) if table and launch.rank is not None else None
    if position is None:
        return launch
    local_known = launch.local_rank is not None
    size_from_table = launch.launcher.by_hand and launch.world_size is None
    return msgspec.structs.replace(
        launch,
        world_size=launch.world_size or position.world_size,
        local_rank=launch.local_rank if local_known else position.local_rank,
        local_world_size=launch.local_world_size if local_known else position.local_world_size,
        node_rank=position.node_rank if launch.node_rank is None else launch.node_rank,
        problems=tuple(
            problem
            for problem in launch.problems
            if problem.value or not (size_from_table and problem.variable in _WORLD_SIZE_VARIABLES)
        ),
    )


def table_conflicts(launch: LaunchedRank, table: MountedRankTable | None) -> tuple[str, ...]:
    """Where the launch and the rank table disagree about the number of ranks."""
    content = table.content if table else None
    if content is None or not content.has_rank_ids or launch.world_size in (None, len(content.ranks)):
        return ()
    table_text = filled("the rank table {0} lists {1}", printable(content.path), len(content.ranks))
    return (filled("the job has {0} ranks, and {1}", launch.world_size, table_text),)


def _nesting(launcher: RankLauncher, present: Sequence[RankLauncher]) -> tuple[str, ...]:
    outer = [other.name for other in present if other is not launcher]
    if not outer:
        return ()
    title = launcher.title
    return (filled("started by {0} inside of {1}: the ranks are those of {2}", title, joined(" and ", outer), title),)

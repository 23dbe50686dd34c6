"""The process groups that the plan's layouts need."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.smoke.programs.process_groups import partitions
from doctor.smoke.programs.worker.comm import ProcessGroup
from doctor.smoke.programs.worker.context import RankContext


def format_ranks(ranks: list[int]) -> str:
    """Ranks in few characters: ``0-3``, ``0-6/2`` for every second one, or all of them, as in ``0,1,3``."""
    stride = ranks[1] - ranks[0] if len(ranks) > 1 else 1
    if len(ranks) > 2 and ranks == list(range(ranks[0], ranks[-1] + 1, stride)):
        return f"{ranks[0]}-{ranks[-1]}" + (f"/{stride}" if stride > 1 else "")
    return ",".join(map(str, ranks))


def partition_groups(ctx: RankContext) -> Iterator[tuple[ProcessGroup, bool]]:
    """This rank's group in every partition, and whether this rank reports for the whole partition."""
    for name, rank_lists in partitions(ctx.plan):
        groups = [ctx.comm.group(f"{name} {format_ranks(ranks)}", ranks) for ranks in rank_lists]
        group = next(group for group in groups if ctx.rank in group.ranks)
        yield group, group is groups[0] and ctx.rank == group.ranks[0]

"""The process groups that the plan's layouts need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from doctor.smoke.programs.worker.comm import ProcessGroup
from doctor.smoke.programs.worker.context import RankContext


def partitions(plan: dict[str, Any]) -> list[tuple[str, list[list[int]]]]:
    """Every way in which the layouts split the world into process groups, each once: a name, and the groups.

    Example: layouts dp=4 and dp=2,tp=2 of 4 ranks give ``[("tp2", [[0, 1], [2, 3]]), ("dp2", [[0, 2], [1, 3]])]``.
    """
    names_by_groups: dict[tuple[tuple[int, ...], ...], dict[str, None]] = {}
    for layout in plan["layouts"]:
        dp, tp, pp = (layout.get(axis, 1) for axis in ("dp", "tp", "pp"))
        ranks = [[[(p * dp + d) * tp + t for t in range(tp)] for d in range(dp)] for p in range(pp)]
        splits = {
            f"tp{tp}": [ranks[p][d] for p in range(pp) for d in range(dp)],
            f"dp{dp}": [[ranks[p][d][t] for d in range(dp)] for p in range(pp) for t in range(tp)],
            f"pp{pp}": [[ranks[p][d][t] for p in range(pp)] for d in range(dp) for t in range(tp)],
        }
        for name, groups in splits.items():
            if 1 < len(groups[0]) < len(plan["places"]):
                names_by_groups.setdefault(tuple(map(tuple, groups)), {})[name] = None
    return [("/".join(names), [list(group) for group in groups]) for groups, names in names_by_groups.items()]


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

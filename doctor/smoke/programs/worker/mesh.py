"""A rank's position in a layout, and the process groups that layouts need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from doctor.remote.runtime.host_texts import filled
from doctor.smoke.programs.process_groups import PlannedLayout, partitions
from doctor.smoke.programs.worker.comm import ProcessGroup, TracedComm
from doctor.smoke.programs.worker.context import RankContext
from doctor.smoke.programs.worker.rng import HEADS


class Mesh:
    """A rank's position in a layout (pp x dp x tp, tp fastest), and the groups that it belongs to.

    Without ``comm`` no groups are made. An axis that the layout does not name has size 1, so that ``{}`` is serial.
    Raises: ValueError.
    """

    def __init__(self, layout: PlannedLayout, rank: int = 0, comm: TracedComm | None = None) -> None:
        self.pp: int = layout.get("pp", 1)
        self.dp: int = layout.get("dp", 1)
        self.tp: int = layout.get("tp", 1)
        size = self.pp * self.dp * self.tp
        if HEADS % self.tp:
            raise ValueError(filled("tensor parallelism over {0} ranks: the model has {1} heads", self.tp, HEADS))
        if comm and size != comm.size:
            raise ValueError(filled("a layout of {0} ranks in a world of {1}", size, comm.size))
        self.pp_rank = rank // (self.tp * self.dp)
        self.dp_rank = rank // self.tp % self.dp
        self.tp_rank = rank % self.tp
        self.is_first_stage: bool = self.pp_rank == 0
        self.is_last_stage: bool = self.pp_rank == self.pp - 1
        self.previous_rank, self.next_rank = rank - self.tp * self.dp, rank + self.tp * self.dp
        self.tp_group: Any = None  # a ProcessGroup, or None where the axis has size 1
        self.dp_group: Any = None
        if not comm:
            return
        for stage in range(self.pp):  # every rank makes every group, whether it is a member or not, in this order
            corner = stage * self.dp * self.tp
            for start in range(corner, corner + self.dp * self.tp, self.tp):
                members = range(start, start + self.tp)
                self.tp_group = self._make_group(comm, "tp", members) or self.tp_group
            for start in range(corner, corner + self.tp):
                members = range(start, corner + self.dp * self.tp, self.tp)
                self.dp_group = self._make_group(comm, "dp", members) or self.dp_group

    @staticmethod
    def _make_group(comm: TracedComm, axis: str, members: range) -> ProcessGroup | None:
        """The group of these ranks if this one is among them."""
        if len(members) == 1:
            return None
        group = comm.group(f"{axis}{len(members)} {format_ranks(list(members))}", list(members))
        return group if comm.rank in members else None

    def blocks(self, count: int) -> range:
        """The blocks of this rank's rows: a dp rank's share of all, the same for all ranks with that dp index."""
        share = count // self.dp
        return range(self.dp_rank * share, (self.dp_rank + 1) * share)


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

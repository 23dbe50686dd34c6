"""Which rank of its job a process is, by its launcher, its platform, and the rank table. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from doctor.engine.sanitize import printable
from doctor.environment.launchers import HYDRA, KINDS, Adopted, Reader
from doctor.environment.mounted_rank_table import Table
from doctor.environment.platforms import Platform
from doctor.environment.rank import adopt, contradiction

LAUNCHERS = (KINDS[0], KINDS[1], HYDRA, *KINDS[2:])
"""Innermost first."""
_OF_RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "RANK_ID", "RANK_SIZE")


class Ranked(msgspec.Struct, frozen=True):
    """A process among those of its launch; without a launcher, one that is no rank."""

    launcher: str = ""
    identity: str = ""
    scheduler: bool = False
    numbers: dict[str, int | None] = {}
    """``rank``, ``world``, ``local_rank``, ``local_world``, ``node_rank``; None: not told."""
    conflicts: tuple[str, ...] = ()


def find_rank(environ: Mapping[str, str], platform: Platform | None, table: Table | None) -> Ranked:
    """As the innermost launcher says that started more than one."""
    environ = {name: value for name, value in environ.items() if not platform or name not in platform.not_ranks}
    made = adopt(environ, LAUNCHERS)
    if made and made.world == 1 and made.launcher != "environment":
        environ = {name: value for name, value in environ.items() if name not in _OF_RANKS}
        made = adopt(environ, [one for one in LAUNCHERS if one.name != made.launcher])
    if made is None or (made.world == 1 and not made.problems):
        return Ranked(numbers=_told(node_rank=platform.node if platform else -1))
    numbers = _numbers(environ, made, table)
    if platform and made.launcher == "srun":
        numbers["node_rank"] = platform.node
    scheduler = made.role == "scheduler"
    return Ranked(made.launcher, made.identity, scheduler, _told(**numbers), _conflicts(environ, made, table))


def _numbers(environ: Mapping[str, str], made: Adopted, table: Table | None) -> dict[str, int]:
    """A device's number is not the rank within the host: a job may have devices 4 to 7. The table tells better."""
    world, local, each, node = made.world, made.local, made.local_world, made.node
    if made.launcher == "msrun" or (made.launcher == "environment" and "LOCAL_RANK" not in environ):
        local = -1
    seat = table.seat(made.rank) if table and made.rank >= 0 else None
    if seat:
        world = world if world > 0 else seat.world
        local, each = (local, each) if local >= 0 else (seat.local, seat.local_world)
        node = node if node >= 0 else seat.node
    return {"rank": made.rank, "world": world, "local_rank": local, "local_world": each, "node_rank": node}


def _told(**numbers: int) -> dict[str, int | None]:
    return {name: number if number >= 0 else None for name, number in numbers.items()}


def _conflicts(environ: Mapping[str, str], made: Adopted, table: Table | None) -> tuple[str, ...]:
    by_hand = made.launcher == "environment"
    said = list(made.problems)
    read = table.read if table else None
    if read and read.has_rank_ids and by_hand and made.world < 0:  # the table tells it
        said = [one for one in said if one.value or one.variable not in ("RANK_SIZE", "WORLD_SIZE")]
    texts = [one.text for one in said] + ([] if by_hand else list(contradiction(Reader(environ), made)))
    if read and read.has_rank_ids and 0 < made.world != len(read.ranks):
        texts.append(
            f"the job has {made.world} ranks, and the rank table {printable(read.path)} lists {len(read.ranks)}"
        )
    return tuple(texts)

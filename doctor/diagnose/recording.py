"""What a flight recorder's dump shows: the last collectives of one rank."""

from __future__ import annotations

import msgspec


class RecordedCollective(msgspec.Struct, frozen=True):
    """One collective of one rank."""

    sequence: int
    """Its number in the process group, from 1."""
    operation: str
    """Without the backend: ``all_reduce``."""
    sizes: str
    """Of inputs and outputs, as far as they must be equal on all ranks; empty where they may differ."""
    ended: bool


class RecordedGroup(msgspec.Struct):
    """One process group, as one rank saw it."""

    name: str
    ranks: list[int]
    """Ranks in the world; empty where the dump does not name them."""
    enqueued: int
    """The number of the last collective that this rank entered."""
    collectives: dict[int, RecordedCollective]


class Recording(msgspec.Struct):
    """The dump of one rank; which rank, only the file's name shows."""

    groups: list[RecordedGroup]

"""Marks of a training's state, as ranks write them: read with limits, since any process may have written them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from doctor.engine.sanitize import printable

MAX_MARK = 32 << 20
"""Bytes of one mark."""
MAX_NAMES = 32768
MAX_RANK = 1 << 20

Number = int | float | str


class LoaderMark(msgspec.Struct):
    """How far one data loader was."""

    size: int = -1
    batch: int = 0
    workers: int = -1
    e: int = 0
    """Its epoch in this process."""
    se: int = -1
    """The epoch that its sampler was given."""
    over: bool = False
    y: int = 0
    """Batches of the epoch that the program has got."""
    first: list[int] = []
    """Of each epoch, the digest of the first batch."""
    crc: list[int] = []
    """Digests of the batches of the epoch, in their order."""
    ahead: list[int] = []
    """Of those that follow, as far as the loader has asked for them."""
    used: dict[str, Any] | None = None
    last: list[int] | None = None
    """The samples of the latest batch."""


class Mark(msgspec.Struct):
    """The state of one rank, at a save or where a training begins."""

    k: str
    r: int
    w: int = 1
    s: int = 0
    at: float = 0.0
    host: str = ""
    g: dict[str, str] = {}
    g0: dict[str, str] = {}
    held: dict[str, str] = {}
    """Generators that variables of the program hold."""
    held0: dict[str, str] = {}
    set: dict[str, list[str]] = {}
    seeded: list[str] = []
    """Generators that were seeded after that; of a save, those that the program seeds in each step."""
    loaders: list[LoaderMark] = []
    in0: list[str] = []
    lr0: list[Number] = []
    model: dict[str, list[Any]] = {}
    trained: list[str] = []
    frozen: list[str] = []
    frozen0: list[str] = []
    """When the training of this process began; so for all names that end in 0."""
    evaluating: list[str] = []
    """Modules that are in evaluation mode, though the training goes on."""
    evaluating0: list[str] | None = None
    """None: not recorded."""
    grads: bool = False
    open: int = 0
    """Backward passes since the latest step of the optimizer."""
    buffers: dict[str, list[Any]] = {}
    states: dict[str, list[Any]] = {}
    numbers: dict[str, Number] = {}
    groups: list[dict[str, Any]] = []
    schedulers: list[dict[str, Any]] = []
    scalers: list[dict[str, Any]] = []
    averaged: list[int] = []
    """Of each average of the parameters, how many updates it has taken in."""
    averages: dict[str, list[Any]] = {}
    """Its tensors, with its number before their names; or with the variable that holds copies of the parameters."""
    averages0: dict[str, list[Any]] = {}
    modules0: list[str] = []
    """Of the variables with copies, those with a module; another one that stays as it is may be what was loaded."""
    unread: list[str] = []
    loads: list[tuple[str, str]] = []
    unloaded: list[str] = []
    unapplied: list[tuple[str, int]] = []
    """Groups of tensors of a loaded file, with their number, whose values no tensor of the program has."""
    parts: list[str] = []
    paths: list[str] = []
    later: list[list[str]] = []
    late: int = 0
    """Steps after which this rank learnt of the save; 0: it saved itself, or learnt of it at once."""
    follows: list[int] = []
    """The digest of the batch that came next, where it is known."""
    is_told: bool = False
    """Whether it learnt of the save from another rank."""


class _More(msgspec.Struct):
    parts: list[str] = []
    paths: list[str] = []
    later: list[list[str]] = []
    late: int | None = None
    ahead: dict[str, tuple[int, int, list[int]]] = {}


def read_mark(content: bytes, more: bytes = b"") -> Mark | None:
    """A mark with what was added to it; None for what is none, or is too large."""
    try:
        if len(content) > MAX_MARK:
            return None
        mark = msgspec.json.decode(content, type=Mark)
        added = msgspec.json.decode(more, type=_More) if more else _More()
    except (msgspec.DecodeError, RecursionError):
        return None
    if not 0 <= mark.r < MAX_RANK or not 0 < mark.w <= MAX_RANK or mark.k not in {"saved", "begun"}:
        return None
    if max(len(mark.model), len(mark.states), len(mark.buffers), len(mark.numbers), len(mark.averages)) > MAX_NAMES:
        return None
    mark.host = printable(mark.host, 64)
    mark.parts, mark.paths, mark.later = added.parts[:8], added.paths[:32], added.later[:4]
    mark.is_told, mark.late = added.late is not None, added.late or 0
    # What came next is the batch that the next forward pass got, where the epoch was not over meanwhile.
    for place, (epoch, yielded, digests) in added.ahead.items():
        number = int(place) if place.isdigit() and len(place) < 6 else -1
        if 0 <= number < len(mark.loaders) and digests:
            loader = mark.loaders[number]
            if epoch == loader.e and yielded == loader.y + mark.open + 1:
                mark.follows = digests[-1:]
    return mark


class Tensors(msgspec.Struct):
    """Tensors of all ranks by name: of whole ones their digests, of others their pieces."""

    complete: dict[str, tuple[str, str, int]] = {}
    """Digest, type, elements."""
    pieces: dict[str, dict[str, tuple[str, str, int]]] = {}
    """Of tensors with missing pieces: by the place of each piece."""
    tables: Mapping[int, Mapping[str, list[Any]]] = {}
    """By rank."""
    uneven: set[str] = set()
    """Names of whole tensors that differ between ranks: stages of a pipeline, experts, buffers of each rank."""
    world: int = 0

    def by_rank(self, name: str) -> dict[int, tuple[str, str, int]]:
        """What each rank holds under a name."""
        rows = {rank: row_of(table, name) for rank, table in self.tables.items()}
        return {rank: row for rank, row in rows.items() if row}

    def other_ranks(self, saved: Tensors, name: str) -> tuple[int, ...]:
        """The ranks that do not hold what they held at the save, where ranks had values of their own, or have them now.

        Where all have the same now, they have been given those of one rank.
        """
        if name not in saved.uneven | self.uneven or self.world != saved.world:
            return ()
        mine, theirs = self.by_rank(name), saved.by_rank(name)
        if mine.keys() >= theirs.keys() and len(set(mine.values())) == 1:
            return ()
        return tuple(rank for rank in sorted(theirs.keys() & self.tables.keys()) if mine.get(rank) != theirs[rank])

    def alike(self, other: Tensors, name: str) -> bool | None:
        """Whether both hold the same values under this name; None where that cannot be said. ``other``: at the save.

        Of ranks with values of their own, such as a normalization's, a checkpoint may keep those of any rank for all.
        """
        if self.other_ranks(other, name):
            return False
        mine, theirs = self.complete.get(name), other.complete.get(name)
        if mine and theirs:
            saved = {theirs, *(other.by_rank(name).values() if name in other.uneven else ())}
            return mine in saved if mine[1:] == theirs[1:] else None
        parts, others = self.pieces.get(name, {}), other.pieces.get(name, {})
        shared = parts.keys() & others.keys()
        return all(parts[place] == others[place] for place in shared) if shared else None

    def other_type(self, other: Tensors, name: str) -> tuple[str, str] | None:
        """The types of a tensor here and there, where these alone differ."""
        mine, theirs = self.complete.get(name), other.complete.get(name)
        return (mine[1], theirs[1]) if mine and theirs and mine[1] != theirs[1] and mine[2] == theirs[2] else None

    @property
    def names(self) -> set[str]:
        return {*self.complete, *self.pieces}


def joined_tensors(tables: Mapping[int, Mapping[str, list[Any]]], world: int = 1) -> Tensors:
    """Puts the pieces of all ranks together. What is malformed is left out.

    >>> joined_tensors({0: {"w": ["1", "float32", 4, 2, [0]]}, 1: {"w": ["f", "float32", 4, 2, [2]]}}).complete
    {'w': ('0000000000000010', 'float32', 4)}
    >>> joined_tensors({0: {"w": ["1", "float32", 4]}, 1: {"w": ["2", "float32", 4]}}).uneven
    {'w'}
    """
    tensors = Tensors({}, {}, tables, set(), world)
    for _, table in sorted(tables.items()):
        for name, row in table.items():
            entry = _entry(row)
            if entry is None:
                continue
            text, place, elements = entry
            if place:
                tensors.pieces.setdefault(name, {})[place] = (text[0], f"{text[1]}/{text[2]}", elements)
            elif tensors.complete.setdefault(name, text) != text:
                tensors.uneven.add(name)
    for name, pieces in list(tensors.pieces.items()):
        kind, _, total = next(iter(pieces.values()))[1].partition("/")
        if name in tensors.complete:
            del tensors.pieces[name]
        elif sum(elements for _, _, elements in pieces.values()) == int(total):
            number = sum(int(digest, 16) for digest, _, _ in pieces.values()) % (1 << 64)
            tensors.complete[name] = (f"{number:016x}", kind, int(total))
            del tensors.pieces[name]
    return tensors


def row_of(table: Mapping[str, list[Any]], name: str) -> tuple[str, str, int] | None:
    """Digest, type and elements of one tensor of a rank; None where it holds no such one."""
    entry = _entry(table.get(name, []))
    return entry[0] if entry else None


def _entry(row: list[Any]) -> tuple[tuple[str, str, int], str, int] | None:
    try:
        number, kind, total = int(row[0], 16), str(row[1])[:20], int(row[2])
        text = (f"{number % (1 << 64):016x}", kind.replace("/", ""), total)
        if len(row) > 4:
            return text, ",".join(str(int(at)) for at in row[4]), int(row[3])
    except (ValueError, TypeError, IndexError):
        return None
    return text, "", total

"""Where a resumed training goes on in its data: against the loaders' positions at the save. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from doctor.engine.sanitize import printable
from doctor.watch.data.records import indices_of
from doctor.watch.resume.marks import LoaderMark, Mark

Values = dict[str, str | int | float]
Row = tuple[str, str, tuple[int, ...], Values]
"""A difference: kind, hardness (`doctor.watch.resume.compare`), ranks, values."""


def data_differences(begun: Mapping[int, Mark], saved: Mapping[int, Mark], world: int) -> Iterator[Row]:
    """What ranks get again, or not in its turn."""
    if world != len(begun) or any(mark.w != world for mark in begun.values()):
        yield from _of_all_ranks(begun, saved, world)
        return
    by_kind: dict[str, list[tuple[int, Values]]] = {}
    hardness_of: dict[str, str] = {}
    for rank, mark in sorted(begun.items()):
        if rank in saved and not _is_inexact(saved[rank], saved) and (row := _of_rank(mark, saved[rank], saved)):
            kind, hardness, values = row
            by_kind.setdefault(kind, []).append((rank, values))
            hardness_of[kind] = hardness
    for kind, rows in by_kind.items():
        ranks = () if len(rows) == len(begun) else tuple(rank for rank, _ in rows)
        yield kind, hardness_of[kind], ranks, rows[0][1]


def own_generators(begun: Mapping[int, Mark], saved: Mapping[int, Mark]) -> Iterator[Row]:
    """Generators that the program holds, and that begin in the state of the first run's begin, though they went on."""
    lost: dict[str, list[int]] = {}
    for rank in sorted(begun.keys() & saved.keys()):
        now, was = begun[rank].held, saved[rank]
        names = [name for name, digest in was.held.items() if digest != was.held0.get(name, digest) == now.get(name)]
        if names:
            lost.setdefault(", ".join(sorted(printable(name, 80) for name in names[:8])), []).append(rank)
    for text, ranks in sorted(lost.items()):
        yield "generators-own", "soft", tuple(ranks), {"names": text}


def _is_inexact(mark: Mark, saved: Mapping[int, Mark]) -> bool:
    """Whether this rank learnt of the save, and its last step ended elsewhere in the epoch: it has several batches."""
    savers = [other for other in saved.values() if not other.is_told]
    places = [(other.e, other.y) for saver in savers for other in saver.loaders[:1]]
    return mark.is_told and bool(places) and [(loader.e, loader.y) for loader in mark.loaders[:1]] != places[:1]


def _of_rank(mark: Mark, saved: Mark, all_saved: Mapping[int, Mark]) -> tuple[str, str, Values] | None:
    now = _latest(mark.loaders)
    before = _counterpart(now, saved.loaders) if now else None
    if now is None or before is None or not now.crc or now.last is None:
        others = [] if now is None or before is None or now.workers == before.workers else [before.workers, now.workers]
        if others and min(others) >= 0:  # each of them reads a share of an iterable data set
            return "data-workers", "note", {"before": others[0], "now": others[1]}
        return _by_inputs(mark, saved)
    if before.over or not before.y:
        return _next_epoch(now, before)
    following = before.ahead[saved.open : saved.open + 1] or saved.follows
    if now.crc[-1] in following:
        return _goes_on(mark, saved)
    if kind := _begins_again(now, before):
        return kind, "soft", {"given": before.y}
    again = _used(before).intersection(now.last) or _used_by_others(before, now, all_saved).intersection(now.last)
    if again:
        return "data-repeated", "soft", {"count": len(again), "total": len(now.last)}
    begins_step = saved.open and now.crc[-1] in before.ahead[:1]
    return ("data-other", "note", {}) if following and not begins_step else None


def _goes_on(mark: Mark, saved: Mark) -> tuple[str, str, Values] | None:
    """With the batch after those that the save had used: their gradients must be there, where no step had used them."""
    return ("gradients", "soft", {"count": saved.open}) if saved.open and not mark.grads else None


def _begins_again(now: LoaderMark, before: LoaderMark) -> str:
    """Whether the epoch of the save begins again, or an earlier one; empty: no."""
    if before.e < len(before.first) and now.crc[-1] == before.first[before.e]:
        return "data-again"
    is_drawn = len(set(before.first)) == len(before.first)
    return "data-epoch" if is_drawn and {*now.first[-1:]}.intersection(before.first[: before.e]) else ""


def _next_epoch(now: LoaderMark, before: LoaderMark) -> tuple[str, str, Values] | None:
    """The save was at the end of an epoch: the order of the next one must be another, where they are shuffled."""
    last = now.last or []
    distances = {after - at for at, after in pairwise(last)}  # one: no order that was drawn
    if now.se < 0 and len(distances) <= 1:  # a sampler that gets an epoch shuffles by it
        return None
    is_drawn = len(set(before.first)) == len(before.first)
    return ("data-epoch", "soft", {}) if is_drawn and now.crc[-1] in before.first else None


def _by_inputs(mark: Mark, saved: Mark) -> tuple[str, str, Values] | None:
    """Of a program whose samples have no numbers: its first input, against those of the first run."""
    after = saved.later[0] if saved.later else []
    if not mark.in0 or not after or after == mark.in0:
        return _goes_on(mark, saved) if mark.in0 and after else None
    if mark.in0 == saved.in0:
        return "inputs-again", "soft", {}
    return None if saved.is_told else ("inputs-other", "note", {})


def _of_all_ranks(begun: Mapping[int, Mark], saved: Mapping[int, Mark], world: int) -> Iterator[Row]:
    """With another number of ranks: whether any sample comes again that some rank had in the epoch."""
    if len(saved) < world:
        return
    for number, mark in sorted(begun.items()):
        now = _latest(mark.loaders)
        if now is None or now.last is None:
            continue
        used: set[int] = set()
        for other in saved.values():
            before = _counterpart(now, other.loaders)
            if before is None or before.over:
                return
            used |= _used(before)
        again = used.intersection(now.last)
        if again:
            yield "data-repeated", "soft", (number,), {"count": len(again), "total": len(now.last)}
            return


def _latest(loaders: Sequence[LoaderMark]) -> LoaderMark | None:
    """The loader that has fed the first step."""
    return next((loader for loader in loaders if loader.y > 0), None)


def _counterpart(now: LoaderMark, loaders: Sequence[LoaderMark]) -> LoaderMark | None:
    return next((loader for loader in loaders if loader.size == now.size), None)


def _used_by_others(before: LoaderMark, now: LoaderMark, saved: Mapping[int, Mark]) -> set[int]:
    """The samples of all ranks in this epoch, where no two had the same: each sample belongs to one."""
    used: set[int] = set()
    for mark in saved.values():
        loader = _counterpart(now, mark.loaders)
        own = _used(loader) if loader and loader.e == before.e and not loader.over else set()
        if not own or not used.isdisjoint(own):
            return set()
        used |= own
    return used


def _used(loader: LoaderMark) -> set[int]:
    """The samples of the epoch that were used; none where a sampler draws with replacement, or too many."""
    if loader.used is None or loader.used.get("count") != loader.used.get("distinct"):
        return set()
    return set(indices_of(loader.used) or ())

"""The samples that data-parallel ranks read, by the indices that their loaders draw: none twice, none missing. Pure.

The generators of data-loader workers are the same inside a model, and other ones for other data. That two workers begin
alike matters where they draw: of ranks that hold one model it is a defect only where their inputs differ as well; all
else is a note.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from doctor.analysis.majority import Split
from doctor.analysis.values.splits import format_ranges, majority_split, names_held_alike, shared_and_unread
from doctor.analysis.values.value_defect import ValueDefect
from doctor.engine.texts import filled
from doctor.watch.data.group_roles import GroupRole, GroupRoles
from doctor.watch.data.records import (
    JobRecords,
    RankValues,
    RecordTable,
    RecordValues,
    by_rank,
    indices_of,
    text_list,
    text_map,
)

CHECK = "smoke-shards-wrong"
Level = Literal["error", "warning", "note"]
ALL_SAMPLES = frozenset({"", "RandomSampler", "SequentialSampler"})
"""Samplers that draw all samples; others may be meant to draw a part."""
LEAST_SHARED = 4
"""Rows with equal content, from which they are no chance."""
MAX_SAMPLES = 1 << 23
"""Of a data set, that are looked for among those that were read."""
OTHER_CONTENT = (
    "the loaders of {who} draw numbers of samples that another data-parallel rank draws as well ({count} of {total}, "
    "such as {samples}), and what they read differs: data sets of their own, or random changes of the samples"
)


def shard_defects(job: JobRecords, roles: GroupRoles) -> Iterator[ValueDefect]:
    """For each data-parallel group, the first loader whose batches overlap or leave samples out."""
    loaders = by_rank(job, "loader", "l", "e")
    for group in roles.data:
        for key, records in sorted(loaders.items()):
            if all(rank in records for rank in group.ranks):
                defects = list(_shares(group, key, records)) or list(_overlap(job, group, key, records))
                defects = defects or list(_repeated(job, group, key, records))
                defects = defects or list(_unread(job, group, key, records))
                if all(defect.level == "note" for defect in defects):
                    defects = [*_same_rows(job, group, key, records), *defects]
                if defects:
                    yield defects[0]
                    break


def _shares(group: GroupRole, key: tuple[Any, ...], records: RankValues) -> Iterator[ValueDefect]:
    """What samplers say of themselves: their share of how many, and the epoch that they shuffle by."""
    shares = {rank: (_number(records[rank], "shares"), _number(records[rank], "share")) for rank in group.ranks}
    if not any(count for count, _ in shares.values()):
        return
    parts = _divisors_split(group, {rank: count for rank, (count, _) in shares.items()})
    taken = Counter(share for count, share in shares.values() if count)
    twice = tuple(rank for rank, (count, share) in shares.items() if count and taken[share] > 1)
    wrong = tuple(rank for rank in twice if shares[rank][1] != group.ranks.index(rank)) or twice
    if parts:
        template = "the sampler of {who} divides the data by {counts}, that of the other data-parallel ranks by {usual}"
        if parts.tie:
            template = "the samplers of {who} divide the data by different numbers ({counts})"
        counts = ", ".join(sorted({str(shares[rank][0] or 1) for rank in parts.differing}))
        values: RecordValues = {"counts": counts, "usual": parts.common or 1, "case": "Divisor"}
        yield _defect(group, "divided", parts.differing, template, values, key, tie=parts.tie)
    elif twice:
        template = (
            "the sampler of {who} draws share {share} of the data, which another data-parallel rank draws as well; its "
            "own is {right}"
        )
        listed = ", ".join(sorted({str(shares[rank][1]) for rank in wrong}))
        right = ", ".join(str(group.ranks.index(rank)) for rank in wrong)
        values = {"share": listed, "right": right, "case": "Share"}
        yield _defect(group, "duplicated", wrong, template, values, key, tie=wrong == twice)
    epochs = {rank: _number(records[rank], "shuffle") for rank in group.ranks}
    if order := majority_split(epochs):
        tie = not order.majority
        late = tuple(epochs) if tie else order.differing
        template = (
            "the samplers of {who} shuffle by epochs {epochs}, most others by {usual}: set_epoch was not called alike"
        )
        if tie:
            template = "the samplers of {who} shuffle by different epochs ({epochs}): set_epoch was not called alike"
        listed = ", ".join(sorted({str(epochs[rank]) for rank in late}))
        values = {"epochs": listed, "usual": order.common, "case": "Epoch"}
        yield _defect(group, "epoch", late, template, values, key, tie=tie)


def _repeated(job: JobRecords, group: GroupRole, key: tuple[Any, ...], records: RankValues) -> Iterator[ValueDefect]:
    """A whole epoch, and then its samples again in the same order, although the samplers shuffle."""
    before, batches = (key[0], key[1] - 1), by_rank(job, "batch", "l", "e", "i")
    ended = by_rank(job, "epoch", "l", "e").get(before, {})
    shuffles = all(
        (_number(records[rank], "shuffle") or 0) >= 0 < (_number(records[rank], "shares") or 0) for rank in group.ranks
    )
    orders = [
        [batches.get((*place, number), {}).get(rank, {}).get("ix") for number in range(2) for rank in group.ranks]
        for place in (before, key)
    ]
    if shuffles and all(rank in ended for rank in group.ranks) and all(orders[0]) and orders[0] == orders[1]:
        template = "epoch {epoch} is read in the order of the epoch before by {who}: set_epoch was not called"
        defect = _defect(group, "epoch", (), template, {"epoch": key[1], "case": "Epoch"}, key)
        yield msgspec.structs.replace(defect, level="warning")


def _overlap(job: JobRecords, group: GroupRole, key: tuple[Any, ...], records: RankValues) -> Iterator[ValueDefect]:
    """Samples that two ranks read in the first batches; at an epoch's end samplers fill up with the first ones."""
    if any(records[rank].get("replacement") for rank in group.ranks):
        return
    size = records[group.ranks[0]].get("size")
    read: dict[int, set[int]] = {rank: set() for rank in group.ranks}
    for (loader, epoch, _), batches in by_rank(job, "batch", "l", "e", "i").items():
        if (loader, epoch) == key and all(rank in batches for rank in group.ranks):
            for rank in group.ranks:
                read[rank] |= indices_of(batches[rank]) or frozenset()
    shared, _ = shared_and_unread(read)
    total = sum(map(len, read.values()))
    # Whole epochs may be filled up by less than a batch for each rank.
    slack = sum(_batch(records[rank]) for rank in group.ranks) if isinstance(size, int) and total >= size > 0 else 0
    if shared and len(shared) > slack:
        template = (
            "the first batches of {who} hold samples that another data-parallel rank reads as well: "
            "{count} of {total}, such as {samples}"
        )
        is_same = _same_data(job, group, records)
        texts = ("duplicated", template if is_same else OTHER_CONTENT)
        yield _read_twice(group, key, texts, shared, total, "error" if is_same else "note")


def _read_twice(
    group: GroupRole,
    key: tuple[Any, ...],
    texts: tuple[str, str],
    shared: Mapping[Any, list[int]],
    total: int,
    level: Level,
) -> ValueDefect:
    """``texts``: the kind, and the template; ``shared``: what is read twice, each with its readers."""
    ranks = tuple(sorted({rank for readers in shared.values() for rank in readers}))
    everybody = ranks == group.ranks and len(ranks) > 2
    values = {
        "count": len(shared),
        "total": total,
        "samples": format_ranges([n for n in shared if isinstance(n, int)][:4]),
    }
    defect = _defect(group, texts[0], () if everybody else ranks, texts[1], values, key, tie=not everybody)
    return msgspec.structs.replace(defect, level=level)


def _same_rows(job: JobRecords, group: GroupRole, key: tuple[Any, ...], records: RankValues) -> Iterator[ValueDefect]:
    """Rows with content that several ranks read, of loaders that read none twice and have no sampler with shares."""
    about = [records[rank] for rank in group.ranks]
    if key[1] or any(values.get("shares") or values.get("replacement") for values in about):
        return
    read: dict[int, list[str]] = {rank: [] for rank in group.ranks}
    for (loader, _), batches in by_rank(job, "rows", "l", "i").items():
        for rank in group.ranks if loader == key[0] else ():
            read[rank] += text_list(batches.get(rank, {}).get("d"))
    shared, _ = shared_and_unread({rank: set(rows) for rank, rows in read.items()})
    if len(shared) >= LEAST_SHARED and all(len(rows) == len(set(rows)) for rows in read.values()):
        template = (
            "the loaders of {who} give rows that another data-parallel rank gets as well: {count} of the first {total}"
        )
        yield _read_twice(group, key, ("same content", template), shared, sum(map(len, read.values())), "warning")


def _same_data(job: JobRecords, group: GroupRole, records: RankValues) -> bool:
    """Whether an index means the same sample on all ranks, for all that is known: each may have a data set of its own.

    A sampler that divides the data says so; without one, the inputs of the first step tell whether they differ, or its
    losses, where the program calls what no hook is at.
    """
    if any(records[rank].get("shares") for rank in group.ranks):
        return True
    for values in (*by_rank(job, "inputs", "s", "i").values(), *by_rank(job, "backward", "s").values()):
        texts = [str(values[rank].get("a", values[rank].get("v"))) for rank in group.ranks if rank in values]
        if len(texts) == len(group.ranks):
            return len(set(texts)) < len(texts)
    return True


def _unread(job: JobRecords, group: GroupRole, key: tuple[Any, ...], records: RankValues) -> Iterator[ValueDefect]:
    """Samples that no rank reads in a whole epoch; loaders may leave out less than a batch for each rank."""
    ended = by_rank(job, "epoch", "l", "e").get(key, {})
    reads_all = all(
        records[rank].get("shares") or records[rank].get("sampler", "") in ALL_SAMPLES for rank in group.ranks
    )
    if not reads_all or any(rank not in ended or records[rank].get("replacement") for rank in group.ranks):
        return
    sets = {rank: indices_of(ended[rank]) for rank in group.ranks}
    size = ended[group.ranks[0]].get("size")
    if any(indices is None for indices in sets.values()) or not isinstance(size, int):
        return
    counts = {rank: len(indices or ()) for rank, indices in sets.items()}
    read = {rank: indices or () for rank, indices in sets.items()}
    _, unread_samples = shared_and_unread(read, range(min(size, MAX_SAMPLES)))
    slack = sum(max(_batch(records[rank]), 1) for rank in group.ranks)
    if len(unread_samples) > slack:
        most = max(counts.values())
        few = tuple(rank for rank, count in counts.items() if count < most - slack / len(counts))
        template = (
            "no data-parallel rank reads {count} of {total} samples in a whole epoch, such as "
            "{samples}: {who} read fewer"
        )
        values = {"count": len(unread_samples), "total": size, "samples": format_ranges(unread_samples[:4])}
        if not few:
            template = "no data-parallel rank reads {count} of {total} samples in a whole epoch, such as {samples}{why}"
            divisors = {_number(records[rank], "shares") or 0 for rank in group.ranks}
            parts, ranks = max(divisors), len(group.ranks)
            is_divided = divisors == {parts} and parts > ranks
            text = ": the samplers divide the data by {0}, and {1} data-parallel ranks read"
            values |= {"why": filled(text, parts, ranks) if is_divided else ""}
            values |= {"case": "Divisor", "usual": ranks} if is_divided else {}
        yield _defect(group, "missing", few, template, values, key)


def _divisors_split(group: GroupRole, divisors: Mapping[int, int | None]) -> Split[int] | None:
    """Who divides the data by another number than there are ranks, which some divide them by; else than most do."""
    parts, size = majority_split(divisors), len(group.ranks)
    if parts is None or size not in divisors.values():
        return parts
    others = tuple(rank for rank, divisor in divisors.items() if divisor != size)
    return Split(others, tuple(rank for rank in divisors if rank not in others), size)


def _number(record: RecordValues, name: str) -> int | None:
    value = record.get(name)
    return value if isinstance(value, int) else None


def _batch(record: RecordValues) -> int:
    size = record.get("batch")
    return size if isinstance(size, int) and 0 <= size < 1 << 20 else 0


def _defect(
    group: GroupRole,
    kind: str,
    ranks: tuple[int, ...],
    template: str,
    values: RecordValues,
    key: tuple[Any, ...],
    tie: bool = False,
) -> ValueDefect:
    values = {"case": "Shards", **values, "loader": key[0]}
    return ValueDefect(CHECK, kind, 0, ranks, template, values, tie=tie, inferred=group.inferred)


SEED_CHECK = "smoke-loader-seed-differs"
GENERATORS = {"python": "random", "numpy": "numpy.random", "torch": "torch"}


def worker_defects(job: JobRecords, roles: GroupRoles, inputs: Sequence[ValueDefect]) -> Iterator[ValueDefect]:
    """Workers that draw other numbers than they should. ``inputs``: what is wrong with the inputs themselves."""
    workers: RecordTable = by_rank(job, "worker", "l", "e", "w")
    masked = {rank: defect.step for defect in inputs if defect.kind == "mask" for rank in defect.ranks}
    for group in roles.model:
        yield from _inside_model(workers, group, masked)
    for group in roles.data:
        yield from _over_data(workers, group)


def _states(records: RankValues, name: str, group: GroupRole) -> dict[int, str]:
    """What each rank of the group says; empty where one of them says nothing."""
    states = {rank: str(text_map(records[rank].get("g")).get(name, "")) for rank in group.ranks if rank in records}
    return states if len(states) == len(group.ranks) and all(states.values()) else {}


def _inside_model(workers: RecordTable, group: GroupRole, masked: dict[int, int]) -> Iterator[ValueDefect]:
    for (loader, _, worker), records in workers.items():
        splits = {name: majority_split(states) for name in GENERATORS if (states := _states(records, name, group))}
        differing = {name: split for name, split in splits.items() if split}
        if not differing:
            continue
        split = next(iter(differing.values()))
        assert split
        steps = [masked[rank] for rank in split.differing if rank in masked]
        names = [GENERATORS[name] for name in differing]
        template = (
            "worker {worker} of loader {loader} on {who} draws other {generators} numbers than on the rest of its "
            "model ({group})"
        )
        values = {"group": format_ranges(group.ranks), "worker": worker, "loader": loader, "generators": names}
        defect = group.difference(SEED_CHECK, "workers", min(steps, default=0), split, template, **values)
        yield msgspec.structs.replace(defect, level="error" if steps else "note", inferred=group.reason)
        return


def _over_data(workers: RecordTable, group: GroupRole) -> Iterator[ValueDefect]:
    for (loader, _, worker), records in workers.items():
        states = {rank: text_map(records[rank].get("g")) for rank in group.ranks if rank in records}
        drawn = {
            rank: {title: str(state[name]) for name, title in GENERATORS.items() if state.get(name)}
            for rank, state in states.items()
        }
        for ranks, generators in names_held_alike(drawn).items():
            template = (
                "worker {worker} of loader {loader} begins with the same {generators} numbers on the data-parallel "
                "ranks {group}: what it draws for their different rows is alike"
            )
            listed = ", ".join(generators)
            values = {"worker": worker, "loader": loader, "generators": listed, "group": format_ranges(ranks)}
            yield ValueDefect(SEED_CHECK, "repeated", 0, (), template, values, level="note")
            return

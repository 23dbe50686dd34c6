"""Parameters in shards: their replicas are equal, and their gradients the mean of the ranks' own. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from doctor.analysis.values.value_defect import ValueDefect
from doctor.engine.texts import filled
from doctor.watch.data.group_roles import GroupRole, GroupRoles, own_tensors
from doctor.watch.data.records import JobRecords, RankValues, RecordTable, RecordValues, by_rank, text_map
from doctor.watch.data.summed_gradients import are_sums, summed_defect

LEAST_STEPS = 3
"""Whose totals must tell the same."""
_PADDED = 0.1
"""Share of a model by which padding may make its shards larger."""
_TOLERANCE = 1e-4
_EXACT = 1e-3
LEAST_EXACT = 2
"""Steps whose totals are equal, where gradients are clipped in others."""


def replica_tables(job: JobRecords, kind: str, group: GroupRole) -> RecordTable:
    """The digests of this kind that the ranks of a group must have alike, by step and rank: as `by_rank` has them.

    Those of whole parameters, and of shards that each rank of the group holds of another whole, in the same place.
    """
    apart = own_tensors(job, group.ranks)
    tables = {
        key: {rank: _without(record, apart) for rank, record in records.items()} if apart else dict(records)
        for key, records in by_rank(job, kind, "s").items()
    }
    for key, records in by_rank(job, filled("{0} shards", kind), "s").items():
        for rank in group.ranks:
            if rank not in records:
                continue
            replicated = _replicated(job, rank, records[rank], group)
            record = tables.setdefault(key, {}).get(rank, {})
            tables[key][rank] = {**record, "t": {**text_map(record.get("t")), **replicated}}
    return tables


def _without(record: RecordValues, apart: set[str]) -> RecordValues:
    """A record without these parameters, and what is kept of them."""
    table = text_map(record.get("t"))
    return {**record, "t": {name: value for name, value in table.items() if name.rpartition(" of ")[2] not in apart}}


def _replicated(job: JobRecords, rank: int, record: RecordValues, group: GroupRole) -> RecordValues:
    """Digests by name; the place of the shard belongs to each."""
    of, digests = text_map(record.get("of")), {}
    for name, digest in text_map(record.get("t")).items():
        number = of.get(name)
        holders = job.ranks[rank].groups.get(number, ()) if isinstance(number, int) else ()
        if digest and rank in holders and not set(holders) & set(group.ranks) - {rank}:
            digests[name] = f"{digest} {holders.index(rank)}/{len(holders)}"
    return digests


def summed_shards(job: JobRecords, roles: GroupRoles) -> Iterator[ValueDefect]:
    """Gradients of shards that are sums: by the totals of what all ranks computed, and of what their optimizers got."""
    totals = by_rank(job, "totals", "s")
    for group in {group.ranks: group for group in (*roles.data, *roles.shards)}.values():
        steps, pairs = [], []
        for (step,), records in sorted(totals.items()):
            pair = _pair(records, group)
            if pair and isinstance(step, int):
                steps.append(step)
                pairs.append(pair)
        if len(pairs) >= LEAST_STEPS and _are_sums(pairs):
            yield from summed_defect(job, group, steps[0])


def _pair(records: RankValues, group: GroupRole) -> tuple[float, float] | None:
    """Of all ranks of a group: the total of what they computed, and that of what one replica's optimizers got."""
    entries = [_numbers(records.get(rank, {})) for rank in group.ranks]
    if not all(entries) or len(entries) < 2:
        return None
    computed, got, sizes, held = (list(column) for column in zip(*entries, strict=True))
    if len(set(sizes)) != 1 or not sizes[0]:
        return None
    copies = round(sum(held) / sizes[0])
    if not 0 < copies <= len(entries) or abs(sum(held) / sizes[0] - copies) > _PADDED or len(entries) % copies:
        return None
    if all(abs(before - after) <= _TOLERANCE * abs(before) for before, after in zip(computed, got, strict=True)):
        return None  # nothing was reduced over this group
    return math.fsum(computed), math.fsum(got) / copies


def _numbers(record: RecordValues) -> tuple[float, float, int, int] | tuple[()]:
    values, sizes = record.get("v"), record.get("n")
    if not isinstance(values, list) or not isinstance(sizes, list) or len(values) != 2 or len(sizes) != 2:
        return ()
    if not all(isinstance(value, float | int) for value in values) or not all(isinstance(size, int) for size in sizes):
        return ()
    return float(values[0]), float(values[1]), sizes[0], sizes[1]


def _are_sums(pairs: list[tuple[float, float]]) -> bool:
    """Whether every step's gradient is the sum; or that of several is, and the others' were clipped to less."""
    if are_sums(pairs):
        return True
    ratios = [after / total for total, after in pairs if total]
    exact = [entry for entry in ratios if abs(entry - 1) < _EXACT]
    return len(exact) >= LEAST_EXACT and all(0 < entry < 1 + _EXACT for entry in ratios)

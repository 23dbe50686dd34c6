"""Parameters in shards: their replicas are equal, and their gradients the mean of the ranks' own, or a sum. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

from doctor.analysis.values.value_defect import ValueDefect
from doctor.engine.texts import filled, joined
from doctor.watch.data.group_roles import GroupRole, GroupRoles, own_tensors
from doctor.watch.data.records import JobRecords, RankValues, RecordTable, RecordValues, by_rank, text_list, text_map

_RATIO_TOLERANCE, _RESIDUAL = 0.02, 0.05
"""Of a reduced gradient against the mean of the local ones: of their ratio, and of what no ratio explains."""
_EXACT = 1e-3
NO_SUMS = frozenset({"MAX", "MIN", "PRODUCT"})
"""Operations of a reduction by which a gradient of all ranks is that of no loss."""
_Scale = Literal["mean", "divided", "unknown"]


def _fit(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The ratio of gradients to sums, and the square of what no ratio explains, of the square of the sums."""
    norm = math.fsum(total * total for total, _ in pairs)
    if not norm or not math.isfinite(norm):
        return math.nan, math.nan
    ratio = math.fsum(total * after for total, after in pairs) / norm
    return ratio, math.fsum((after - ratio * total) ** 2 for total, after in pairs) / norm


def are_sums(pairs: Sequence[tuple[float, float]]) -> bool:
    """Whether gradients are the sum of what the ranks computed, in direction and in length: pairs of sum and gradient.

    >>> are_sums([(4.0, 4.01), (2.0, 2.0)]), are_sums([(4.0, 2.0), (2.0, 1.0)])
    (True, False)
    """
    ratio, rest = _fit(pairs)
    return abs(ratio - 1) < _RATIO_TOLERANCE and rest < _RESIDUAL**2


def no_sum_defect(
    job: JobRecords, group: GroupRole, step: int, pairs: Sequence[tuple[float, float]]
) -> Iterator[ValueDefect]:
    """Of a step whose gradients the program reduces by another operation, and that are no multiple of their sum."""
    reductions = [record for rank in group.ranks for record in job.ranks[rank].of("left")]
    used = {
        name for each in reductions if job.members(each) == group.ranks for name in text_list(each.values.get("op"))
    }
    ratio, rest = _fit(pairs)
    if used and used <= NO_SUMS and rest >= (_RESIDUAL * ratio) ** 2:
        template = (
            "the gradient of step {step} is reduced by {operation}, and is neither the mean nor the sum of the {count} "
            "data-parallel ranks' own"
        )
        values = {"count": len(group.ranks), "operation": ", ".join(sorted(used))}
        yield ValueDefect(
            "smoke-gradient-summed", "operation", step, (), template, values, inferred=group.inferred, root=True
        )


def summed_defect(job: JobRecords, group: GroupRole, step: int) -> Iterator[ValueDefect]:
    """Of a step whose reduced gradient is a sum: none where the loss was divided by the number of ranks before."""
    scale = _loss_scale(job, group, step)
    if scale == "divided":
        return
    template = "the reduced gradient of step {step} is the sum of the {count} data-parallel ranks' own, not their mean"
    if scale == "unknown":
        template = joined(
            "", (template, "; that is right if the loss was divided by their total before, which could not be seen")
        )
    yield ValueDefect(
        "smoke-gradient-summed", "data", step, (), template, {"count": len(group.ranks)},
        level="error" if scale == "mean" else "note", inferred=group.inferred, root=True,
    )  # fmt: skip


def _loss_scale(job: JobRecords, group: GroupRole, step: int) -> _Scale:
    """What the ranks' losses of a step are: means over their own rows, or those divided by the number of ranks.

    A loss that is divided by the number of its micro-batches is a mean; where these are as many as the ranks, either
    may be meant, and it counts as divided.
    """
    scales: set[tuple[tuple[str, object], ...]] = set()
    for rank in group.ranks:
        records = job.ranks[rank].of("backward") if rank in job.ranks else ()
        losses_of_rank = [
            (str(record.values.get("how")), record.values.get("f")) for record in records if record.step == step
        ]
        scales.add(tuple(losses_of_rank))
    losses = next(iter(scales)) if len(scales) == 1 else ()
    factors = {factor for reduction, factor in losses if reduction == "mean" and isinstance(factor, float | int)}
    if len(factors) != 1 or any(reduction != "mean" for reduction, _ in losses):
        return "unknown"
    factor, passes, count = next(iter(factors)), len(losses), len(group.ranks)
    if abs(factor * count - 1) < _EXACT or abs(factor * count * passes - 1) < _EXACT:
        return "divided"
    return "mean" if factor == 1.0 or abs(factor * passes - 1) < _EXACT else "unknown"


LEAST_STEPS = 3
"""Whose totals must tell the same."""
_PADDED = 0.1
"""Share of a model by which padding may make its shards larger."""
_TOLERANCE = 1e-4
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

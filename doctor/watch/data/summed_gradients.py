"""Gradients that are the sum of the ranks' own: what is said of them, by what is known of the loss. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

from doctor.analysis.values.value_defect import ValueDefect
from doctor.engine.texts import joined
from doctor.watch.data.group_roles import GroupRole
from doctor.watch.data.records import JobRecords, text_list

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

"""What each step of a sharded optimizer (ZeRO-1) had in hand, kept until it is known whether anything was wrong.

Each number of such a step is computed by one rank, and soon held by all: who holds a wrong one has seldom made it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from doctor.smoke.programs.worker.context import RankContext
from doctor.smoke.programs.worker.libraries import torch
from doctor.smoke.programs.worker.model import digests_of_all
from doctor.smoke.programs.worker.replay import distance
from doctor.smoke.programs.worker.values import digest

LEARNING = -1
"""Stands for the layout of the learning stage."""

MOST_PARTS = 64
"""An event must fit into one write to a pipe."""
PARTED: dict[str, Callable[[int, int], int]] = {
    "all_reduce": lambda length, count: 2 * -(-length // (2 * count)),
    "all_gather": lambda length, count: length // count,
}
"""By call, how long a part is: gloo/allreduce.cc has two segments for each member."""


class KeptStep(NamedTuple):
    """One step on one rank. Vectors are in the order of `ShardedParameters.flat`."""

    computed: torch.Tensor
    """The gradient of the rank's own rows."""
    altered: float
    """How far it was another one in its memory once the others had it."""
    summed: torch.Tensor
    """The sum of all ranks' gradients of its shard."""
    updated: torch.Tensor
    """The shard's parameters behind the update."""
    gathered: torch.Tensor
    """All parameters, as the others sent them."""


def kept_steps(model: Any) -> list[KeptStep]:
    """Of the layout that the model was trained in; none where its optimizer is not sharded."""
    calls, owned = model.comm.of_group(model.mesh.dp_group) if model.zero else (), model.owned_slice
    # gloo of an older torch reduces all shards.
    return [
        KeptStep(
            reduced.sent,
            reduced.altered,
            reduced.got[owned] if len(reduced.got) == len(model.flat) else reduced.got,
            gathered.sent,
            gathered.got,
        )
        for reduced, gathered in zip(calls[::2], calls[1::2])
    ]


def rounding_bound(addends: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """How far the mean of ``k`` numbers of ``dtype``, times ``k``, may be from their exact sum, by element.

    ``addends``: in double precision, of shape (k, ...). With ``u``, half of the dtype's epsilon (2^-24 in float32),
    each of the k - 1 additions and the division multiplies its exact result by 1 - u to 1 + u. So each addend is in
    the result with k such factors at most, in any order of the additions (a ring, a tree, one after another):
    off by k * u / (1 - k * u) of the sum of the magnitudes, also where the addends cancel out. The length of a shard
    has no part in it, as each element is compared. Numbers too small to be normal may become zero: as they come, by
    each addition, and by the division.
    """
    count, numbers = len(addends), torch.finfo(dtype)
    share = count * numbers.eps / 2
    return addends.abs().sum(0) * (share / (1 - share)) + 3 * count * numbers.tiny


def departs_from_itself(ctx: RankContext, model: Any) -> bool:
    """Whether a rank's shard is not the sum of what all ranks added to it, or not what it had given. Every rank calls
    it.

    A library of an accelerator may add in the buffer that it was given.
    """
    model.sum_errors, on_cpu, owned = sum_errors(ctx, model), model.flat.device.type == "cpu", model.owned_slice
    return any(model.sum_errors) or any(
        (step.altered and on_cpu) or not torch.equal(step.gathered[owned], step.updated) for step in kept_steps(model)
    )


def sum_errors(ctx: RankContext, model: Any) -> list[float]:
    """Of each kept step, how far this rank's sum is from the exact one of what all ranks added to it; 0 within what
    rounding may do. Every rank calls it, and sends the others what it had added.
    """
    kept, count = kept_steps(model), model.mesh.dp
    if not kept:
        return []
    gradients = torch.stack([step.computed.view(count, -1) for step in kept], 1)
    added = torch.empty_like(gradients)
    ctx.comm.all_to_all(added, gradients, model.mesh.dp_group)
    sums = torch.stack([step.summed for step in kept])
    return wrong_sums(sums.cpu().double(), added.cpu().double(), gradients.dtype)


def wrong_sums(sums: torch.Tensor, addends: torch.Tensor, dtype: torch.dtype) -> list[float]:
    """By row, how far the sums are from those of the addends, as a share; 0 where no element is out of its bound.

    ``sums``: means of ``dtype`` times their number, of shape (rows, elements); ``addends``: (numbers, rows, elements).
    """
    exact = addends.sum(0)
    is_right = ((sums - exact).abs() <= rounding_bound(addends, dtype)) | ~(sums.isfinite() | exact.isfinite())
    return [0.0 if right.all() else distance(*pair) for right, *pair in zip(is_right, sums, exact)]


def emit_kept(ctx: RankContext, layout: int, model: Any) -> None:
    """Says of each kept step of a sharded optimizer which of its numbers others have otherwise, or are not the same
    when read again; and of the first call that gave the ranks of a group other results, what each part of the rank's
    is. A sum or a gathered tensor has a part for each member, who gives it to the others. Every rank calls it.
    """
    for group in filter(None, (model.mesh.dp_group, model.mesh.tp_group)):
        calls = [call for call in model.comm.of_group(group) if call.op in PARTED and len(group) <= MOST_PARTS]
        every = digests_of_all(ctx, group, [digest(call.got) for call in calls]) if calls else torch.zeros(1, 1)
        differing = (every != every[0]).any(0).nonzero().flatten().tolist()
        if differing:
            got, number = calls[differing[0]].got.flatten(), differing[0]
            parts = [digest(part) for part in got.split(PARTED[calls[number].op](len(got), len(group)))]
            ctx.emit("parts", layout=layout, group=group.ranks, call=number, parts=parts)
    for number, step in enumerate(kept_steps(model)):
        ctx.emit(
            "sharded",
            layout=layout,
            step=number,
            altered=step.altered,
            summed=model.sum_errors[number],
            held=digest(step.gathered),
            kept=torch.equal(step.gathered[model.owned_slice], step.updated),
        )

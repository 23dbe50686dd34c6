"""What each step of a sharded optimizer (ZeRO-1) had in hand, kept until it is known whether anything was wrong.

Each number of such a step is computed by one rank, and soon held by all: who holds a wrong one has seldom made it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from doctor.smoke.programs.worker.context import RankContext
from doctor.smoke.programs.worker.libraries import torch
from doctor.smoke.programs.worker.replay import KeptCall, distance
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


def kept_steps(model: Any) -> list[tuple[KeptCall, KeptCall]]:
    """Of the layout that the model was trained in, what a rank added and what it got; none without a sharded optimizer.

    The gradient of its own rows, and the sum of all ranks' of its shard; the shard's parameters behind the update, and
    all as the others sent them: vectors in the order of `ShardedParameters.flat`.
    """
    calls = model.comm.of_group(model.mesh.dp_group) if model.zero else ()
    return list(zip(calls[::2], calls[1::2]))


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
        (reduced.altered and on_cpu) or not torch.equal(gathered.got[owned], gathered.sent)
        for reduced, gathered in kept_steps(model)
    )


def sum_errors(ctx: RankContext, model: Any) -> list[float]:
    """Of each kept step, how far this rank's sum is from the exact one of what all ranks added to it; 0 within what
    rounding may do. Every rank calls it, and sends the others what it had added.
    """
    kept, count = kept_steps(model), model.mesh.dp
    if not kept:
        return []
    gradients = torch.stack([reduced.sent.view(count, -1) for reduced, _ in kept], 1)
    added = torch.empty_like(gradients)
    ctx.comm.all_to_all(added, gradients, model.mesh.dp_group)
    # gloo of an older torch reduces all shards.
    sums = torch.stack(
        [reduced.got[model.owned_slice if len(reduced.got) == len(model.flat) else ...] for reduced, _ in kept]
    )
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
    when read again; and of what all ranks of a group get alike, what the rank has of each member's part.
    """
    for group in filter(None, (model.mesh.dp_group, model.mesh.tp_group)):
        for op, length_of in PARTED.items():
            parts = [0] * len(group)
            for got in (call.got.flatten() for call in model.comm.of_group(group) if call.op == op):
                pieces = got.split(length_of(len(got), len(group)))
                parts = [digest(f"{before} {digest(piece)}".encode()) for before, piece in zip(parts, pieces)]
            if any(parts) and len(group) <= MOST_PARTS:
                ctx.emit("parts", layout=layout, group=group.ranks, op=op, parts=parts)
    for number, (reduced, gathered) in enumerate(kept_steps(model)):
        ctx.emit(
            "sharded",
            layout=layout,
            step=number,
            altered=reduced.altered,
            summed=model.sum_errors[number],
            held=digest(gathered.got),
            kept=torch.equal(gathered.got[model.owned_slice], gathered.sent),
        )

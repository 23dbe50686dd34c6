"""The losses of a batch and their gradient by the model's formulas, in double precision on the CPU.

By products and sums of elements: no product of matrices, and no function of a library of networks; from the numbers of
the tokens, not from the batch's tensors. So a rank that computes the model wrongly each time, or makes other tensors of
its data, shows even where only one other rank could contradict it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from doctor.smoke.programs.worker.batch import Batch, block_count
from doctor.smoke.programs.worker.context import RankContext
from doctor.smoke.programs.worker.libraries import torch
from doctor.smoke.programs.worker.model import Model
from doctor.smoke.programs.worker.replay import departure
from doctor.smoke.programs.worker.rng import BLOCK_ROWS, DROPOUT, SEQUENCE_LENGTH, VOCABULARY, CounterRng

FORMULA_BLOCKS = 8
"""Of a step, whose losses are computed so: some 60 MB at a time."""


def times(x: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """``x @ matrix.T``, element by element."""
    return (x[..., None, :] * matrix).sum(-1)


def normalized(x: torch.Tensor) -> torch.Tensor:
    """Each row with a mean of 0 and a variance of 1."""
    from_mean = x - x.sum(-1, keepdim=True) / x.shape[-1]
    return from_mean / ((from_mean * from_mean).sum(-1, keepdim=True) / x.shape[-1] + 1e-5).sqrt()


def shares(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Exponentials as shares of their sum."""
    powers = (x - x.amax(dim, keepdim=True)).exp()
    return powers / powers.sum(dim, keepdim=True)


def by_formula(batch: Batch, weights: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The mean loss of each block of rows, and the gradient of their mean. ``weights``: of the whole model, by name."""
    values: Any = {name: weight.detach().cpu().double().requires_grad_() for name, weight in weights.items()}
    inputs, selectors, targets = (
        (numbers.cpu()[..., None] == torch.arange(size)).double()
        for numbers, size in (
            (batch.tokens.scatter(1, batch.positions, 0), VOCABULARY),
            (batch.positions, SEQUENCE_LENGTH),
            (batch.tokens.gather(1, batch.positions), VOCABULARY),
        )
    )
    x = times(inputs, values["words"].t()) + values["places"]
    for number in range(sum(name.endswith(".qkv") for name in values)):
        norm, qkv, out, up, down = (values[f"{number}.{name}"] for name in ("norm", "qkv", "out", "up", "down"))
        h = normalized(x) * norm
        q, k, v = times(h, qkv.flatten(0, 2)).unflatten(2, qkv.shape[:3]).unbind(2)  # by row, position, number, head
        weight = shares((q[:, :, None] * k[:, None]).sum(3) / math.sqrt(qkv.shape[1]), 2)
        heads = (weight[:, :, :, None] * v[:, None]).sum(2).transpose(2, 3).flatten(2)
        wide = times(h, up)
        change = times(heads, out) + times(wide * 0.5 * (1 + (wide / math.sqrt(2)).erf()), down)
        x = x + change * batch.kept[number].cpu().double() / (1 - DROPOUT)
    chosen = times(selectors, x.transpose(1, 2)[:, None])
    scores = shares(times(normalized(chosen) * values["norm"], values["head"]), -1)
    losses: torch.Tensor = -(scores.log() * targets).sum(-1).mean(-1)
    losses.mean().backward()
    return losses.detach().view(-1, BLOCK_ROWS).mean(1), {name: value.grad for name, value in values.items()}


def given_by_formula(ctx: RankContext, model: Model) -> float:
    """How far what a rank that holds the whole model gave of the first step is from the formulas, as a share.

    0 where others had sent it other weights to begin with.
    """
    mesh, begun = model.mesh, ctx.initial_weights or {}
    calls = model.comm.of_group(mesh.dp_group)
    if mesh.tp * mesh.pp > 1 or not calls or model.error_of(model.comm.start, begun):
        return 0.0
    count = block_count(ctx.world_size)
    batch = Batch(ctx, CounterRng(ctx.plan["seed"], ctx.device), 0, mesh.blocks(count), True, count)
    losses, gradient = by_formula(batch, begun)
    added = calls[0].sent[: model.size]
    return max(departure(model.comm.steps[0][1], losses), departure(added, model.share_of(gradient)[: model.size]))

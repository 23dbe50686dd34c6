"""What each step of a sharded optimizer (ZeRO-1) had in hand, kept until it is known whether anything was wrong.

Each number of such a step is computed by one rank, and soon held by all: who holds a wrong one has seldom made it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from doctor.smoke.programs.worker.batch import Batch
from doctor.smoke.programs.worker.context import RankContext
from doctor.smoke.programs.worker.libraries import torch
from doctor.smoke.programs.worker.values import digest, finite_or_none, relative_distance

LEARNING = -1
"""Stands for the layout of the learning stage."""
MOST_KEPT = 16
"""Steps of a layout whose tensors are kept: what is wrong later shows by what it leads to."""
REPORTED_SHARDS = 16
"""Wrong shards that an event names, the furthest ones."""
MOST_SUMS = 64
"""Shards, up to which a rank tells what it added to each."""
WRONG_SHARD = 1e-4
"""From the reference run's values, as a share of their norm."""


class KeptStep(NamedTuple):
    """One step on one rank. Vectors are in the order of `ShardedParameters.flat`."""

    step: int
    batch: Batch
    computed: torch.Tensor
    """The gradient of the rank's own rows."""
    sent: torch.Tensor
    """The same, as it lay in memory when the others had it."""
    reduced: torch.Tensor
    """The mean gradient of the rank's shard."""
    updated: torch.Tensor
    """The parameters of its shard behind the update."""
    gathered: torch.Tensor
    """All parameters, as the others sent them."""


def distance(tensor: torch.Tensor, expected: torch.Tensor) -> float:
    """As a share of the expected norm; 1 where that is 0 and the values are not, or where one is not finite."""
    if torch.equal(tensor, expected):
        return 0.0
    share = relative_distance(tensor, expected)
    return 1.0 if share is None else share


def wrong_shards(flat: torch.Tensor, expected: torch.Tensor, count: int) -> dict[int, float]:
    """How far each shard is from what it should be, of those that are far, by data-parallel index."""
    pairs = zip(flat.view(count, -1), expected.view(count, -1))
    far = {index: share for index, pair in enumerate(pairs) if (share := distance(*pair)) > WRONG_SHARD}
    furthest = sorted(far, key=lambda index: -far[index])[:REPORTED_SHARDS]
    return {index: float(f"{far[index]:.3g}") for index in sorted(furthest)}


def projections(flat: torch.Tensor, count: int) -> list[float]:
    """A sum of each shard's numbers with signs, the same on every rank: that of a sum is the sum of them.

    Empty where one is not finite.
    """
    shards = flat.view(count, -1).double().cpu()
    signs = torch.randint(0, 2, shards.shape[1:], generator=torch.Generator().manual_seed(1)).double() * 2 - 1
    sums = [float(f"{number:.9g}") for number in (shards @ signs).tolist()]
    return sums if all(map(math.isfinite, sums)) else []


def emit_sharded_steps(
    ctx: RankContext,
    layout: int,
    model: Any,
    references: Sequence[Any],
    initial: Mapping[str, torch.Tensor] | None,
    optimizer: Callable[[torch.Tensor, torch.Tensor], None],
) -> None:
    """Says of each kept step which of its numbers are not the reference run's, or not what the rank computes again.

    ``references``: a `ReferenceStep` for each step that the rank has done alone. ``initial``: the parameters before.
    ``optimizer``: a new one, for the updates once more. A rank that holds the whole model computes again with the
    parameters that it had; else with those of the reference run, which are right in the first wrong step.
    """
    owned, count = model.owned_slice, model.mesh.dp
    for kept in model.kept[: len(references)] if initial is not None else ():
        reference = references[kept.step]
        before = references[kept.step - 1].weights if kept.step else initial
        held = model.kept[kept.step - 1].gathered if kept.step else model.share_of(initial)
        weights = model.share_of(reference.weights)
        whole = model.mesh.tp * model.mesh.pp == 1
        alone = model.gradient_alone(kept.batch, model.by_name(held) if whole else before)
        updated = held[owned].clone()
        optimizer(updated, kept.reduced)
        ctx.emit(
            "sharded",
            layout=layout,
            step=kept.step,
            computed=distance(kept.computed, model.share_of(alone)),
            altered=distance(kept.sent, kept.computed),
            sums=projections(kept.computed, count) if count <= MOST_SUMS else [],
            sum=next(iter(projections(kept.reduced * count, 1)), None) if count <= MOST_SUMS else None,
            norm=finite_or_none(kept.reduced.norm() * count),
            reduced=distance(kept.reduced, model.share_of(reference.gradient)[owned]),
            remade=distance(kept.updated, updated),
            updated=distance(kept.updated, weights[owned]),
            held=digest(kept.gathered),
            kept=torch.equal(kept.gathered[owned], kept.updated),
            gathered=wrong_shards(kept.gathered, weights, count),
        )

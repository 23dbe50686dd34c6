"""What each step of a sharded optimizer (ZeRO-1) had in hand, kept until it is known whether anything was wrong.

Each number of such a step is computed by one rank, and soon held by all: who holds a wrong one has seldom made it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from doctor.smoke.programs.worker.batch import Batch
from doctor.smoke.programs.worker.context import RankContext
from doctor.smoke.programs.worker.libraries import torch
from doctor.smoke.programs.worker.values import digest, relative_distance

LEARNING = -1
"""Stands for the layout of the learning stage."""
MOST_KEPT = 64
"""Steps of a layout whose tensors are all kept: 15 MB at most. Of later ones the rank keeps its shard: what it had of
the others shows by what it leads to."""
MOST_SHARDS_KEPT = 256
"""Steps of a layout whose shard is kept: 40 MB at most."""
REPORTED_SHARDS = 16
"""Wrong shards that an event names, the furthest ones."""
WRONG_SHARD = 1e-4
"""From the reference run's values, as a share of their norm."""


class KeptShard(NamedTuple):
    """What one step made of a rank's shard, with what must be the same bit for bit."""

    reduced: torch.Tensor
    """The mean gradient of the shard."""
    updated: torch.Tensor
    """Its parameters behind the update."""
    came_back: torch.Tensor
    """The same, as the exchange of the shards left it."""
    altered: bool
    """The rank's gradient in its memory was another one once the others had it."""
    held: int
    """A digest of all parameters, as the others sent them; 0 where they are kept themselves."""


class KeptStep(NamedTuple):
    """One step on one rank. Vectors are in the order of `ShardedParameters.flat`."""

    step: int
    batch: Batch
    computed: torch.Tensor
    """The gradient of the rank's own rows."""
    sent: torch.Tensor
    """The same, as it lay in memory when the others had it."""
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


def rounding_bound(addends: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """How far the mean of ``k`` numbers of ``dtype``, times ``k``, may be from their exact sum, by element.

    ``addends``: in double precision, of shape (k, ...). With ``u``, half of the dtype's epsilon (2^-24 in float32),
    each of the k - 1 additions and the division multiplies its exact result by 1 - u to 1 + u. So each addend is in
    the result with k such factors at most, whatever the order of the additions (a ring, a tree, one after another):
    off by k * u / (1 - k * u) of the sum of the magnitudes, also where the addends cancel out. The length of a shard
    has no part in it, as each element is compared. Numbers too small to be normal may become zero: as they come, by
    each addition, and by the division.
    """
    count, numbers = len(addends), torch.finfo(dtype)
    share = count * numbers.eps / 2
    return addends.abs().sum(0) * (share / (1 - share)) + 3 * count * numbers.tiny


def keep_step(model: Any, gradient: torch.Tensor, updated: torch.Tensor) -> None:
    """Keeps what the step that has just been done had in hand."""
    (computed, sent), number = model.reduction, len(model.shards)
    if number >= MOST_SHARDS_KEPT:
        return
    came_back, altered = model.flat[model.owned_slice].clone(), not torch.equal(sent, computed)
    is_whole = number < MOST_KEPT
    held = 0 if is_whole else digest(model.flat)
    model.shards.append(KeptShard(gradient.clone(), updated, came_back, altered, held))
    if is_whole:
        model.kept.append(KeptStep(number, model.batch, computed, sent, model.flat.clone()))


def made_again(model: Any, optimizer: Callable[[torch.Tensor, torch.Tensor], None]) -> Iterator[torch.Tensor]:
    """The update of each kept shard once more, from what the rank had then."""
    before = model.first_shard
    for shard in model.shards:
        updated = before.clone()
        optimizer(updated, shard.reduced)
        yield updated
        before = shard.came_back


def departs_from_itself(ctx: RankContext, model: Any, optimizer: Callable[[torch.Tensor, torch.Tensor], None]) -> bool:
    """Whether a rank's shard is not the sum of what all ranks added to it, or not bit for bit what it makes of the same
    numbers again, or what it had given. Every rank calls it.

    A library of an accelerator may add in the buffer that it was given.
    """
    model.sum_errors, on_cpu = sum_errors(ctx, model), model.flat.device.type == "cpu"
    return any(model.sum_errors) or any(
        (shard.altered and on_cpu) or not (torch.equal(again, shard.updated) and torch.equal(again, shard.came_back))
        for shard, again in zip(model.shards, made_again(model, optimizer))
    )


def sum_errors(ctx: RankContext, model: Any) -> list[float]:
    """Of each kept step, how far this rank's sum is from the exact one of what all ranks added to it; 0 within what
    rounding may do. Every rank calls it, and sends the others what it had added.
    """
    count = model.mesh.dp
    if count == 1 or not model.kept:
        return []
    gradients = torch.stack([kept.computed.view(count, -1) for kept in model.kept], 1)
    added = torch.empty_like(gradients)
    ctx.comm.all_to_all(added, gradients, model.mesh.dp_group)
    sums = torch.stack([shard.reduced for shard in model.shards[: len(model.kept)]]).cpu().double() * count
    return wrong_sums(sums, added.cpu().double(), gradients.dtype)


def wrong_sums(sums: torch.Tensor, addends: torch.Tensor, dtype: torch.dtype) -> list[float]:
    """By row, how far the sums are from those of the addends, as a share; 0 where no element is out of its bound.

    ``sums``: means of ``dtype`` times their number, of shape (rows, elements); ``addends``: (numbers, rows, elements).
    """
    exact = addends.sum(0)
    is_right = ((sums - exact).abs() <= rounding_bound(addends, dtype)) | ~(sums.isfinite() | exact.isfinite())
    return [0.0 if right.all() else distance(*pair) for right, *pair in zip(is_right, sums, exact)]


def repeated_bits(model: Any, optimizer: Callable[[torch.Tensor, torch.Tensor], None]) -> list[dict[str, Any]]:
    """Of each kept shard, what an event says of numbers that are the same bit for bit where nothing is wrong."""
    return [
        {
            "remade": distance(shard.updated, again),
            "held": digest(model.kept[number].gathered) if number < MOST_KEPT else shard.held,
            "kept": torch.equal(shard.came_back, shard.updated),
        }
        for number, (shard, again) in enumerate(zip(model.shards, made_again(model, optimizer)))
    ]


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
    owned, count, exact = model.owned_slice, model.mesh.dp, repeated_bits(model, optimizer)
    for step in range(len(model.kept), len(exact)):
        ctx.emit("sharded", layout=layout, step=step, altered=float(model.shards[step].altered), **exact[step])
    for kept in model.kept[: len(references)] if initial is not None else ():
        shard, reference = model.shards[kept.step], references[kept.step]
        before = references[kept.step - 1].weights if kept.step else initial
        held = model.kept[kept.step - 1].gathered if kept.step else model.share_of(initial)
        weights = model.share_of(reference.weights)
        whole = model.mesh.tp * model.mesh.pp == 1
        alone = model.gradient_alone(kept.batch, model.by_name(held) if whole else before)
        ctx.emit(
            "sharded",
            layout=layout,
            step=kept.step,
            computed=distance(kept.computed, model.share_of(alone)),
            altered=distance(kept.sent, kept.computed),
            summed=model.sum_errors[kept.step] if model.sum_errors else 0.0,
            reduced=distance(shard.reduced, model.share_of(reference.gradient)[owned]),
            updated=distance(shard.updated, weights[owned]),
            gathered=wrong_shards(kept.gathered, weights, count),
            **exact[kept.step],
        )

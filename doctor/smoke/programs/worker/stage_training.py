"""Stages ``training`` and ``learning``.

Every rank trains the model alone, the reference run; then all ranks train it together, in every layout. All layouts
start from the same parameters and take the same rows, so that every loss must be the reference run's.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

from doctor.smoke.programs.process_groups import PlannedLayout
from doctor.smoke.programs.worker.batch import Batch, block_count
from doctor.smoke.programs.worker.context import STAGE_FUNCTIONS, RankContext, ReferenceStep, code_path
from doctor.smoke.programs.worker.formula import FORMULA_BLOCKS, by_formula, given_by_formula
from doctor.smoke.programs.worker.libraries import torch
from doctor.smoke.programs.worker.mesh import Mesh
from doctor.smoke.programs.worker.model import Model, replicas_hold
from doctor.smoke.programs.worker.optimizer_shards import LEARNING, departs_from_itself, emit_kept
from doctor.smoke.programs.worker.parameters import Adam, sgd
from doctor.smoke.programs.worker.replay import RecordedComm, block_losses, departure, replay
from doctor.smoke.programs.worker.rng import CounterRng
from doctor.smoke.programs.worker.second_round import run_second_round
from doctor.smoke.programs.worker.values import digest, exceeds, finite_or_none, matmul_error, relative_distance

BLOCKS_PER_EVENT = 60
"""An event must fit into one write to a pipe."""
LEARNING_BLOCKS = 32
"""At least so many blocks a step of the learning stage: the mean of a few tokens would vary more than it falls."""
MOST_SERIAL_BLOCKS = 4096
"""Of all steps of the serial training together: about a second on a CPU."""
SERIAL_DISTANCE = 0.01
"""From the serial training, as a share, from which on what a rank has learned, or an accelerator trained, counts as a
wrong result: the collectives are repeated, which are exact, and show whose it is if one became wrong after its test."""
SECOND_ROUND_AFTER_TRAINING = 12.0
"""Seconds at most; a third of them where no collective is wrong."""
DISTANT = 1e-4
"""From the reference run, as a share, from which on all ranks do the training again, each by itself."""
CPU_AGAIN = 1e-5
"""The same on a CPU; healthy ones come to 5e-7."""
LEARNED_AGAIN = 5e-4
"""The same of what a rank has learned; of 360 healthy trainings the furthest came to 1.2e-4."""
REFERENCE_BLOCKS = 512
"""The ranks other than 0 do only as many steps of the reference run as have so many blocks."""


def make_batch(ctx: RankContext, model: Any, rng: CounterRng, step: int, dropout: bool) -> Batch:
    """This rank's rows of a step. ``model``: a `Model`, or another object with a `Mesh`. No dropout: for learning."""
    ctx.recorder.step = step
    ctx.recorder.mark("input")
    count = block_count(ctx.world_size) if dropout else block_count(ctx.world_size, LEARNING_BLOCKS)
    batch = Batch(ctx, rng, step, model.mesh.blocks(count), dropout, count)
    ctx.recorder.mark("compute")
    return batch


def initial_seed(ctx: RankContext, layout: PlannedLayout) -> int:
    """The seed of a rank's first parameters: only the first dp rank has the plan's. The broadcast makes them equal."""
    return int(ctx.plan["seed"]) + (1000 + ctx.rank if Mesh(layout, ctx.rank).dp_rank else 0)


def stage_training(ctx: RankContext) -> None:
    """The reference run, then each layout of the plan."""
    reference_run(ctx)
    models = [train_layout(ctx, index, layout) for index, layout in enumerate(ctx.plan["layouts"])]
    departs = sum(departs_from_itself(ctx, model) for model in models)
    if ctx.comm.sum_over_ranks(ctx.distant_steps + departs):
        for index, model in enumerate(models):
            emit_kept(ctx, index, model)
        repeat_training(ctx, models)
    run_second_round(ctx, SECOND_ROUND_AFTER_TRAINING)


def reference_run(ctx: RankContext) -> None:
    """The same training in one process. Every rank does it, so that a device that computes differently shows.

    The first step is computed twice, so that an error that does not repeat shows on a single rank: in the gradient, or
    in the losses alone, as of scores that are all shifted by one number.

    With very many blocks all ranks but rank 0 do only the first steps; the digest of the parameters is from behind the
    last step that all of them do.
    """
    model, rng = Model(ctx, {}, ctx.plan["seed"]), CounterRng(ctx.plan["seed"], ctx.device)
    params = 0
    first, start, losses, norms, repeated = digest(model.flat), model.flat.clone(), [], [], 0.0
    ctx.initial_weights = model.by_name(start)
    steps = ctx.plan["steps"]
    common_steps = min(steps, max(1, REFERENCE_BLOCKS // block_count(ctx.world_size)))
    for step in range(steps if ctx.is_first else common_steps):
        batch = make_batch(ctx, model, rng, step, True)
        losses.append(finite_or_none(model.forward_backward(batch)))
        gradient = model.reduce_gradient()
        norms.append(model.norm_share(gradient))
        of_blocks = block_losses(model)
        if step == 0:
            gradient = gradient.clone()
            model.forward_backward(batch)
            repeated = max(departure(model.reduce_gradient(), gradient), departure(block_losses(model), of_blocks))
        model.update(gradient, sgd)
        ctx.reference.append(ReferenceStep(model.by_name(gradient), model.by_name(model.flat), of_blocks))
        if step + 1 == common_steps:
            params = digest(model.flat)
        for block in range(0, len(batch.blocks) if ctx.is_first else 0, BLOCKS_PER_EVENT):
            part = slice(block, block + BLOCKS_PER_EVENT)
            ctx.emit("reference-blocks", step=step, first=block, ids=batch.ids[part], masks=batch.masks[part])
    ctx.emit(
        "reference", losses=losses, grads=norms, params=params, params_step=common_steps, init=first,
        precision=matmul_error(ctx.device), code_path=code_path(ctx), repeated=repeated, layout=0.0, formula=0.0,
    )  # fmt: skip
    if ctx.is_first:
        ctx.emit("reference-update", update=model.squared_norms(model.flat - start))


def repeat_training(ctx: RankContext, models: Sequence[Model]) -> None:
    """Each step of the reference run and of the layouts once more, by each rank alone, from the parameters before it.

    What a rank has computed wrongly since then shows on it alone, even where two hosts share each model.
    """
    seed, count = ctx.plan["seed"], block_count(ctx.world_size)
    serial, recording = Model(ctx, {}, seed), RecordedComm(None)
    batch = Batch(ctx, CounterRng(seed, ctx.device), 0, range(min(count, FORMULA_BLOCKS)), True, count)
    serial.forward_backward(batch)
    begun = ctx.initial_weights or {}
    losses, gradient = by_formula(batch, begun)
    formula = max(departure(block_losses(serial), losses), serial.error_of(serial.gradient, gradient) or 0.0)
    formula = max([formula, *(given_by_formula(ctx, model) for model in models)])
    recording.start = serial.share_of(begun)
    recording.steps = [(serial.share_of(step.weights), step.losses) for step in ctx.reference]
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if ctx.device.type == "cpu" else usual)
    repeated = replay(ctx, Model(ctx, {}, seed), recording, make_batch, sgd, True)
    again = [Model(ctx, layout, seed, model.comm) for layout, model in zip(ctx.plan["layouts"], models)]
    layout = max(replay(ctx, model, model.comm, make_batch, sgd, True) for model in again)
    torch.set_default_dtype(usual)
    ctx.emit("reference-repeated", repeated=repeated, layout=layout, formula=formula)


def train_layout(ctx: RankContext, index: int, layout: PlannedLayout) -> Model:
    """One layout. All dp ranks but the first start from other parameters, which the broadcast must make the same."""
    started = time.monotonic()
    ctx.recorder.step = 0  # the reference run may have done more steps on some ranks than on others
    model = Model(ctx, layout, initial_seed(ctx, layout), RecordedComm(ctx.comm))
    rng = CounterRng(ctx.plan["seed"], ctx.device)
    before = model.digests()["params"]
    model.broadcast_params()
    error = model.error_of(model.flat, ctx.initial_weights)
    held = model.digests()
    ctx.emit("begin", layout=index, before=before, error=error, kept=model.arrived in (None, held["params"]), **held)
    start, on_cpu = model.flat.clone(), ctx.device.type == "cpu"
    model.comm.start = start
    for step in range(ctx.plan["steps"]):
        ctx.comm.modes.check()
        batch = make_batch(ctx, model, rng, step, True)
        trained = train_step(model, batch, ctx.reference[step] if step < len(ctx.reference) else None)
        errors = trained["grad_error"], trained["params_error"], trained["loss_error"]
        ctx.distant_steps += exceeds(CPU_AGAIN if on_cpu else DISTANT, errors) or bool(trained["bad"])
        # An accelerator may multiply with fewer bits in every healthy run.
        ctx.wrong_results += exceeds(DISTANT if on_cpu else SERIAL_DISTANCE, errors)
        ctx.emit("step", layout=index, step=step, **trained)
        model.comm.keep_step(model)
    seconds = round(time.monotonic() - started, 3)
    ctx.emit("end", layout=index, update=model.squared_norms(model.flat - start), seconds=seconds)
    return model


def train_step(model: Model, batch: Batch, reference: ReferenceStep | None = None) -> dict[str, Any]:
    """One step of training; returns what the ``step`` event says of it.

    ``reference``: the same step of the reference run, if this rank went so far.
    """
    loss = model.forward_backward(batch)
    local_norm = model.norm_share(model.gradient)
    nonfinite = model.nonfinite.origin() or ("gradient" if local_norm is None else "")
    bad_at = model.nonfinite.first_at() if nonfinite else None
    gradient = model.reduce_gradient()
    norm, gradient_digest = model.norm_share(gradient, model.owned_slice), digest(gradient)
    kept = model.reduced_digest() in (None, gradient_digest)
    error = model.error_of(gradient, reference and reference.gradient, model.owned_slice)
    model.update(gradient, sgd)
    params_error = model.error_of(model.flat, reference and reference.weights)
    loss_error = None
    if loss is not None and reference is not None:
        loss_error = relative_distance(loss, reference.losses[batch.blocks].mean())
    digests = model.digests()
    if not nonfinite and not math.isfinite(float(model.flat.sum())):
        nonfinite = "parameters"
    return dict(
        loss=None if loss is None else finite_or_none(loss), blocks=batch.blocks[:BLOCKS_PER_EVENT],
        ids=batch.ids[:BLOCKS_PER_EVENT], masks=batch.masks[:BLOCKS_PER_EVENT], rng=batch.rng_digests,
        grad_local=local_norm, grad=norm, grad_digest=gradient_digest, grad_error=error, bad=nonfinite, bad_at=bad_at,
        params_error=params_error, loss_error=loss_error, kept=kept,
        **model.messages.fields(), **digests,
    )  # fmt: skip


def stage_learning(ctx: RankContext) -> None:
    """One layout, trained for as many steps as a healthy run needs for its loss to fall.

    Nothing is recomputed: the training stage has shown that this changes no number.
    """
    # Tensor parallelism takes several collectives a layer, the other axes a few a step.
    axes = [(-each.get("tp", 1), (each.get("pp", 1) > 1) + (each.get("dp", 1) > 1)) for each in ctx.plan["layouts"]]
    layout = ctx.plan["layouts"][axes.index(max(axes))].copy()
    layout["recompute"] = False
    model = Model(ctx, layout, initial_seed(ctx, layout), RecordedComm(ctx.comm))
    rng, adam = CounterRng(ctx.plan["seed"], ctx.device), Adam()
    model.broadcast_params()
    model.comm.start = model.flat.clone()
    count = block_count(ctx.world_size, LEARNING_BLOCKS)
    # The serial training does all steps, but for worlds whose blocks would take it seconds.
    compared, gradients = max(1, min(ctx.plan["learn_steps"], MOST_SERIAL_BLOCKS // count)), 0
    learned, losses = (model.flat, model.gradient), []
    for step in range(ctx.plan["learn_steps"]):
        ctx.comm.modes.check()
        loss = model.forward_backward(make_batch(ctx, model, rng, step, False))
        if loss is not None:
            ctx.emit("learn", step=step, loss=finite_or_none(loss))
            losses.append(loss)
        gradient = model.reduce_gradient()
        gradients = 0 if model.zero else digest(f"{gradients} {digest(gradient)}".encode())
        model.update(gradient, adam)
        model.comm.keep_step(model)
        if step + 1 == compared:
            learned = model.flat.clone(), gradient.clone()
    compare_learned(ctx, model, gradients, learned, losses[:compared], compared)
    run_second_round(ctx, SECOND_ROUND_AFTER_TRAINING)


def compare_learned(
    ctx: RankContext,
    model: Model,
    gradients: int,
    learned: tuple[torch.Tensor, torch.Tensor],
    losses: list[torch.Tensor],
    compared: int,
) -> None:
    """Compares the parameters, the last gradient and each loss with those of the same training, done serially.

    ``gradients``: a digest of all; ``learned``: parameters and gradient after ``compared`` steps, which the serial
    training does; ``losses``: of these steps. Of data-parallel ranks that hold the same bits the first one does it for
    all, and sends the others its losses of all blocks. All ranks make the same calls for this, with right and with
    wrong values: wrong values cannot lead ranks to different collectives.
    """
    held = digest(model.flat[: model.size]), gradients
    mesh, same = model.mesh, replicas_hold(ctx, model.mesh, held)
    count = block_count(ctx.world_size, LEARNING_BLOCKS)
    of_blocks, error = torch.zeros(compared, count, device=ctx.device), None
    if mesh.dp_rank == 0 or not same:
        error = learned_error(ctx, model, *learned, of_blocks)
    by_block = of_blocks.clone()
    if mesh.dp > 1:
        ctx.comm.broadcast(of_blocks, mesh.dp_group.ranks[0], mesh.dp_group)
    blocks = mesh.blocks(count)
    serial = of_blocks[:, blocks.start : blocks.stop].mean(1)
    loss_error = max((relative_distance(loss, serial[step]) or 0 for step, loss in enumerate(losses)), default=None)
    ctx.wrong_results += exceeds(SERIAL_DISTANCE, (error, loss_error))
    is_told = departs_from_itself(ctx, model) or exceeds(LEARNED_AGAIN, (error, loss_error)) or not same
    repeated = 0.0
    if ctx.comm.sum_over_ranks(is_told or not math.isfinite(float(model.flat.sum()))):
        repeated = repeat_learning(ctx, model, learned, error, by_block)
    ctx.emit(
        "learned", pp=mesh.pp_rank, tp=mesh.tp_rank, params=held[0], gradient=held[1], steps=ctx.plan["learn_steps"],
        error=error, error_steps=compared, code_path=code_path(ctx), loss_error=loss_error, repeated=repeated,
        serial=[] if error is None else [finite_or_none(loss) for loss in by_block.mean(1)], **model.messages.fields(),
    )  # fmt: skip


def repeat_learning(
    ctx: RankContext,
    model: Model,
    learned: tuple[torch.Tensor, torch.Tensor],
    error: float | None,
    losses: torch.Tensor,
) -> float:
    """The rank's part of the steps once more, and its serial training, if it has done one; how far they are from
    themselves. ``error`` and ``losses``: what that had come to.

    Not on accelerators: what they add in another order, Adam amplifies.
    """
    emit_kept(ctx, LEARNING, model)
    if ctx.device.type != "cpu":
        return 0.0
    again, serial = torch.zeros_like(losses), 0.0
    if error is not None:
        serial = max(abs((learned_error(ctx, model, *learned, again) or 0.0) - error), departure(again, losses))
    return max(serial, replay(ctx, model, model.comm, make_batch, Adam(), False))


def learned_error(
    ctx: RankContext, model: Model, flat: torch.Tensor, gradient: torch.Tensor, of_blocks: torch.Tensor
) -> float | None:
    """How far the learned parameters are from those of the serial run, as a share of what they changed by.

    Or the last gradient, as a share of its norm, if that is further: Adam hides a gradient that is a multiple. The
    serial losses are left in ``of_blocks``: a row for each of its steps.
    """
    serial, rng, adam = Model(ctx, {}, ctx.plan["seed"]), CounterRng(ctx.plan["seed"], ctx.device), Adam()
    start = model.share_of(serial.by_name(serial.flat))
    for step, losses in enumerate(of_blocks):
        serial.forward_backward(make_batch(ctx, serial, rng, step, False))
        losses.copy_(block_losses(serial))
        serial.update(serial.reduce_gradient(), adam)
    expected = model.share_of(serial.by_name(serial.flat))
    changed = (expected - start).norm()
    of_gradient = model.error_of(gradient, serial.by_name(serial.gradient), model.owned_slice) or 0
    return finite_or_none(max(float((flat - expected).norm() / changed), of_gradient))


STAGE_FUNCTIONS["training"] = stage_training
STAGE_FUNCTIONS["learning"] = stage_learning

"""Trainers that use what torch offers for parallel training: the layouts of the training stage once more.

Their collectives are torch's own, so that the flight recorder knows only the step.
"""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

from doctor.smoke.programs.process_groups import PlannedLayout
from doctor.smoke.programs.worker.batch import model_layer_count
from doctor.smoke.programs.worker.context import RankContext
from doctor.smoke.programs.worker.libraries import torch
from doctor.smoke.programs.worker.mesh import Mesh
from doctor.smoke.programs.worker.parameters import LAYER_PARAMETERS, initial_parameters
from doctor.smoke.programs.worker.rng import HEADS, HIDDEN, SEQUENCE_LENGTH, VOCABULARY, CounterRng
from doctor.smoke.programs.worker.stage_training import initial_seed, make_batch
from doctor.smoke.programs.worker.values import finite_or_none


def stage_module(
    weights: dict[str, torch.Tensor], layers: Sequence[int], is_first: bool, is_last: bool, recompute: bool
) -> torch.nn.Module:
    """One pipeline stage with these layers. The classes are made here, as torch is imported after this text."""
    nn = torch.nn

    def linear(weight: torch.Tensor) -> torch.nn.Linear:
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
        layer.weight = nn.Parameter(weight.clone(memory_format=torch.contiguous_format))
        return layer

    def layer_norm(weight: torch.Tensor) -> torch.nn.LayerNorm:
        layer = nn.LayerNorm(HIDDEN, bias=False)
        layer.weight = nn.Parameter(weight.clone())
        return layer

    class TransformerLayer(torch.nn.Module):
        def __init__(
            self, norm: torch.Tensor, qkv: torch.Tensor, out: torch.Tensor, up: torch.Tensor, down: torch.Tensor
        ) -> None:
            super().__init__()
            self.norm = layer_norm(norm)
            # `Model` orders numbers by their position in a head; a column-parallel layer splits by head.
            self.q, self.k, self.v = (linear(part.transpose(0, 1).flatten(0, 1)) for part in qkv)
            self.out, self.up, self.down = linear(out), linear(up), linear(down)

        def forward(self, x: torch.Tensor, dropout_scale: torch.Tensor) -> torch.Tensor:
            h = self.norm(x)
            q, k, v = (
                part(h).unflatten(-1, (-1, HIDDEN // HEADS)).transpose(1, 2) for part in (self.q, self.k, self.v)
            )
            heads = nn.functional.scaled_dot_product_attention(q, k, v)
            attention = self.out(heads.transpose(1, 2).flatten(2))
            return x + (attention + self.down(nn.functional.gelu(self.up(h)))) * dropout_scale

    class PipelineModule(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            if is_first:
                self.token_embedding = linear(weights["words"].t())
                self.position_embedding = nn.Parameter(weights["places"].clone())
            parameters = [[weights[f"{number}.{name}"] for name in LAYER_PARAMETERS] for number in layers]
            self.layers = nn.ModuleList([TransformerLayer(*of_layer) for of_layer in parameters])
            if is_last:
                self.norm, self.head = layer_norm(weights["norm"]), linear(weights["head"])

        def forward(self, x: torch.Tensor, dropout_scale: torch.Tensor) -> torch.Tensor:
            if is_first:
                x = self.token_embedding(x) + self.position_embedding
            for number, layer in zip(layers, self.layers):
                scale = dropout_scale[:, number]
                if recompute:
                    x = torch.utils.checkpoint.checkpoint(layer, x, scale, use_reentrant=False)
                else:
                    x = layer(x, scale)
            # A copy: the schedules of torch 2.6 detach it in place, which a view of a tensor-parallel head forbids.
            return self.head(self.norm(x)).clone() if is_last else x

    return PipelineModule()


def mean_loss(scores: torch.Tensor, goal: torch.Tensor) -> torch.Tensor:
    """The mean loss over masked positions. ``goal``: selectors and targets of a `Batch`, side by side."""
    selectors, targets = goal.split([SEQUENCE_LENGTH, VOCABULARY], -1)
    return -((selectors @ scores).log_softmax(-1) * targets).sum(-1).mean()


def checkpoint_api(layout: PlannedLayout) -> str:
    """The end of a trainer's `api` name."""
    return ", checkpoint" if layout.get("recompute") else ""


class Trainer:
    """What all trainers share: the rank's rows, the steps, and the loss of all ranks together."""

    parallel = True

    def __init__(self, ctx: RankContext, layout: PlannedLayout) -> None:
        self.ctx, self.layout = ctx, layout
        self.mesh = Mesh(layout, ctx.rank, ctx.comm) if self.parallel else Mesh(layout)
        self.rng = CounterRng(ctx.plan["seed"], ctx.device)
        self.micro_batch_count = max(self.mesh.pp, layout.get("accumulate", 1))
        self.module = self.wrap(self.make_module(self.seed()).to(ctx.device))
        self.optimizer = self.make_optimizer()

    def seed(self) -> int:
        return int(self.ctx.plan["seed"])

    def make_module(self, seed: int) -> torch.nn.Module:
        mesh, count = self.mesh, model_layer_count(self.ctx.plan)
        layers = range(count * mesh.pp_rank // mesh.pp, count * (mesh.pp_rank + 1) // mesh.pp)
        weights, recompute = initial_parameters(seed, count), self.layout.get("recompute", False)
        return stage_module(weights, layers, mesh.is_first_stage, mesh.is_last_stage, recompute)

    def wrap(self, module: torch.nn.Module) -> Any:
        return module

    def make_optimizer(self) -> Any:
        return torch.optim.SGD(self.module.parameters(), lr=0.5, foreach=False)

    def losses(self) -> list[float | None]:
        """Trains; returns the loss of every step over all rows, the same on every rank."""
        losses = torch.zeros(self.ctx.plan["steps"], device=self.ctx.device)
        for step in range(len(losses)):
            batch = make_batch(self.ctx, self, self.rng, step, True)
            self.optimizer.zero_grad()
            goal = torch.cat([batch.selectors, batch.targets], -1)
            loss = self.forward_backward(batch.inputs, batch.dropout_scale.transpose(0, 1), goal)
            self.optimizer.step()
            if loss is not None:
                losses[step] = loss
        if self.parallel:
            self.ctx.comm.all_reduce(losses, self.ctx.comm.world)
            losses /= self.mesh.dp * self.mesh.tp
        return [finite_or_none(loss) for loss in losses]

    def forward_backward(self, inputs: torch.Tensor, dropout_scale: torch.Tensor, goal: torch.Tensor) -> Any:
        """Forward and backward, in micro-batches of one size; returns the mean loss, or None where there is none."""
        total = 0.0
        micro_batches = list(zip(*(tensor.chunk(self.micro_batch_count) for tensor in (inputs, dropout_scale, goal))))
        for number, (part, scale, part_goal) in enumerate(micro_batches, 1):
            with self.gradient_sync(number == len(micro_batches)):
                loss = mean_loss(self.module(part, scale), part_goal) / len(micro_batches)
                loss.backward()
            total = total + loss.detach()
        return total

    def gradient_sync(self, is_last: bool) -> contextlib.AbstractContextManager[Any]:
        """The context of one micro-batch. ``is_last``: its gradient completes the step's."""
        return contextlib.nullcontext()


class NativeReference(Trainer):
    """The same module in one process, without a wrapper."""

    parallel = False

    def __init__(self, ctx: RankContext) -> None:
        super().__init__(ctx, {})


class Replicated(Trainer):
    """DistributedDataParallel, which broadcasts the first rank's parameters."""

    @staticmethod
    def api(layout: PlannedLayout) -> str:
        """The names of what is used, as events carry them."""
        no_sync = ", no_sync" if layout.get("accumulate", 1) > 1 else ""
        return "DistributedDataParallel" + no_sync + checkpoint_api(layout)

    def seed(self) -> int:
        return initial_seed(self.ctx, self.layout)

    def wrap(self, module: torch.nn.Module) -> Any:
        return torch.nn.parallel.DistributedDataParallel(module, broadcast_buffers=False)

    def gradient_sync(self, is_last: bool) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext() if is_last else self.module.no_sync()


class ShardedOptimizer(Replicated):
    """The same, with the optimizer's state sharded over the ranks."""

    @staticmethod
    def api(layout: PlannedLayout) -> str:
        return Replicated.api(layout) + ", ZeroRedundancyOptimizer"

    def make_optimizer(self) -> Any:
        from torch.distributed.optim import ZeroRedundancyOptimizer

        return ZeroRedundancyOptimizer(self.module.parameters(), torch.optim.SGD, lr=0.5)


class Composed(Trainer):
    """Any mixture, as large models are trained: DTensor for tp, fully_shard for dp, a schedule for pp."""

    @staticmethod
    def api(layout: PlannedLayout) -> str:
        """The names of what is used, as events carry them."""
        sizes = (layout.get("pp", 1), layout.get("tp", 1), layout.get("dp", 1))
        apis = zip(("ScheduleGPipe", "parallelize_module", "fully_shard"), sizes)
        used = [name for name, size in apis if size > 1] or ["fully_shard"]
        return ", ".join(used) + checkpoint_api(layout)

    def wrap(self, module: torch.nn.Module) -> Any:
        from torch.distributed.device_mesh import init_device_mesh

        mesh, axes = self.mesh, ("pp", "dp", "tp")
        devices = init_device_mesh(self.ctx.device.type, (mesh.pp, mesh.dp, mesh.tp), mesh_dim_names=axes)
        if mesh.tp > 1:
            module = self.split_tensors(module, devices["tp"])
        if mesh.dp > 1 or mesh.pp * mesh.tp == 1:
            fully_shard = import_fully_shard(self.ctx.device)
            for part in (*module.layers, module):
                fully_shard(part, mesh=devices["dp"])
        if mesh.pp > 1:
            self.schedule = self.make_schedule(module, devices["pp"].get_group())
        return module

    def split_tensors(self, module: torch.nn.Module, devices: Any) -> torch.nn.Module:
        """Tensor parallelism."""
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        styles: dict[str, Any] = {}
        for number in range(len(module.layers)):
            styles.update({f"layers.{number}.{name}": ColwiseParallel() for name in ("q", "k", "v", "up")})
            styles.update({f"layers.{number}.{name}": RowwiseParallel() for name in ("out", "down")})
        if self.mesh.is_last_stage:
            styles["head"] = ColwiseParallel(output_layouts=import_replicate()())
        return parallelize_module(module, devices, styles)

    def make_schedule(self, module: torch.nn.Module, group: Any) -> Any:
        """Pipeline parallelism."""
        from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

        stage = PipelineStage(module, self.mesh.pp_rank, self.mesh.pp, self.ctx.device, group=group)
        # Older schedules never divide the sum over micro-batches.
        scale = {"scale_grads": False} if "scale_grads" in inspect.signature(ScheduleGPipe).parameters else {}
        count = self.micro_batch_count
        return ScheduleGPipe(stage, count, loss_fn=lambda scores, goal: mean_loss(scores, goal) / count, **scale)

    def forward_backward(self, inputs: torch.Tensor, dropout_scale: torch.Tensor, goal: torch.Tensor) -> Any:
        if self.mesh.pp == 1:
            return super().forward_backward(inputs, dropout_scale, goal)
        losses: list[torch.Tensor] = []
        if self.mesh.is_first_stage:
            self.schedule.step(inputs, dropout_scale=dropout_scale)
        elif self.mesh.is_last_stage:
            self.schedule.step(dropout_scale=dropout_scale, target=goal, losses=losses)
        else:
            self.schedule.step(dropout_scale=dropout_scale)
        return sum(loss.detach() for loss in losses) if self.mesh.is_last_stage else None


FULLY_SHARD_ON_CPUS = (2, 10)
"""A torch whose FSDP2 is known to train on CPUs: 2.6 fails in the backward pass, 2.7 and 2.8 take sums for means."""


def import_fully_shard(device: torch.device) -> Callable[..., Any]:
    """FSDP2, by the name that it has in this torch. Raises: NotImplementedError where it cannot train on the device."""
    version = tuple(int(number) for number in re.findall(r"\d+", torch.__version__)[:2])
    if device.type == "cpu" and version < FULLY_SHARD_ON_CPUS:
        raise NotImplementedError("its fully_shard does not train on CPUs")
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        from torch.distributed._composable.fsdp import fully_shard
    return fully_shard  # type: ignore[no-any-return]


def import_replicate() -> Any:
    """DTensor's Replicate, by the name that it has in this torch."""
    try:
        from torch.distributed.tensor import Replicate
    except ImportError:
        from torch.distributed._tensor import Replicate
    return Replicate

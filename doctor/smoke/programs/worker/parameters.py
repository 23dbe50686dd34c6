"""One rank's share of the model's parameters, what data parallelism does with them, and the optimizers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from doctor.smoke.programs.process_groups import PlannedLayout
from doctor.smoke.programs.worker.batch import model_layer_count
from doctor.smoke.programs.worker.context import RankContext
from doctor.smoke.programs.worker.libraries import torch
from doctor.smoke.programs.worker.mesh import Mesh
from doctor.smoke.programs.worker.rng import HEADS, HIDDEN, MLP_HIDDEN, SEQUENCE_LENGTH, VOCABULARY
from doctor.smoke.programs.worker.values import digest, finite_or_none, relative_distance

LAYER_PARAMETERS = ("norm", "qkv", "out", "up", "down")
TP_DIMENSION = {"qkv": 2, "out": 1, "up": 0, "down": 1, "head": 0}
"""The dimension in which tensor parallelism splits a parameter."""


def initial_parameters(seed: int, layer_count: int) -> dict[str, torch.Tensor]:
    """All parameters of the model, by name, such as ``words``, ``0.qkv``, ``head``."""
    generator = torch.Generator().manual_seed(seed)

    def normal(scale: float, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * scale

    hidden_scale, mlp_scale = HIDDEN**-0.5, MLP_HIDDEN**-0.5
    weights = {"words": normal(1.0, VOCABULARY, HIDDEN), "places": normal(0.1, SEQUENCE_LENGTH, HIDDEN)}
    for layer in range(layer_count):
        weights[f"{layer}.norm"] = torch.ones(HIDDEN)
        weights[f"{layer}.qkv"] = normal(hidden_scale, 3, HIDDEN // HEADS, HEADS, HIDDEN)
        weights[f"{layer}.out"] = normal(hidden_scale, HIDDEN, HIDDEN)
        weights[f"{layer}.up"] = normal(hidden_scale, MLP_HIDDEN, HIDDEN)
        weights[f"{layer}.down"] = normal(mlp_scale, HIDDEN, MLP_HIDDEN)
    weights["norm"] = torch.ones(HIDDEN)
    weights["head"] = normal(hidden_scale, VOCABULARY, HIDDEN)
    return weights


def is_tp_split(name: str) -> bool:
    """Whether tensor parallelism splits this parameter, so that the tp ranks hold different parts of it."""
    return name.rsplit(".", 1)[-1] in TP_DIMENSION


class ShardedParameters:
    """The parameters of one rank's pipeline stage, and of its matrices the rank's tp share.

    Weights are views of one flat vector and gradients of another, so that one collective moves them all.

    ``comm``: a `TracedComm` or a `RecordedComm`; None for the reference run, in which one rank holds the whole model.
    """

    def __init__(self, ctx: RankContext, layout: PlannedLayout, seed: int, comm: Any = None) -> None:
        self.mesh = Mesh(layout, ctx.rank if comm else 0, comm)
        self.comm = comm  # None only where the layout has no parallel axis
        self.device = ctx.device
        self.layer_count = model_layer_count(ctx.plan)
        self.zero = layout.get("zero", False) and self.mesh.dp > 1
        self.arrived: int | None = None
        local = {
            name: self.tp_share(name, weight)
            for name, weight in initial_parameters(seed, self.layer_count).items()
            if self.in_stage(name)
        }
        self.size = sum(weight.numel() for weight in local.values())
        self.shard_size = -(-self.size // self.mesh.dp)  # of a ZeRO-1 rank; the last one's is filled up with zeros
        self.flat = torch.zeros(self.shard_size * self.mesh.dp if self.zero else self.size, device=self.device)
        self.gradient, self.norm_weights = torch.zeros_like(self.flat), torch.zeros_like(self.flat)
        self.weights: dict[str, torch.Tensor] = {}
        self.spans: dict[str, slice] = {}
        start = 0
        for name, weight in local.items():
            span = self.spans[name] = slice(start, start + weight.numel())
            self.flat[span] = weight.reshape(-1).to(self.device)
            # What all tp ranks hold counts for a part on each, so that the squares of all ranks sum to the full norm.
            self.norm_weights[span] = 1.0 if is_tp_split(name) else 1.0 / self.mesh.tp
            self.weights[name] = self.flat[span].view(weight.shape).detach().requires_grad_()
            self.weights[name].grad = self.gradient[span].view(weight.shape)
            start = span.stop

    @property
    def stage_layers(self) -> range:
        stage, stages = self.mesh.pp_rank, self.mesh.pp
        return range(self.layer_count * stage // stages, self.layer_count * (stage + 1) // stages)

    def in_stage(self, name: str) -> bool:
        layer = name.split(".", 1)[0]
        if layer.isdigit():
            return int(layer) in self.stage_layers
        return self.mesh.is_first_stage if name in ("words", "places") else self.mesh.is_last_stage

    def tp_share(self, name: str, weight: torch.Tensor) -> torch.Tensor:
        """This rank's share of a matrix: complete heads, MLP units or tokens."""
        if not is_tp_split(name):
            return weight
        return weight.chunk(self.mesh.tp, TP_DIMENSION[name.rsplit(".", 1)[-1]])[self.mesh.tp_rank]

    def share_of(self, reference: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """What this rank holds of the reference model's tensors, as one vector, in the order of `flat`."""
        share = torch.zeros_like(self.flat)
        for name, span in self.spans.items():
            share[span] = self.tp_share(name, reference[name]).reshape(-1)
        return share

    @property
    def owned_slice(self) -> slice:
        """The part of the flat vectors that this rank updates: all of it, or its shard under ZeRO-1."""
        if not self.zero:
            return slice(None)
        return slice(self.mesh.dp_rank * self.shard_size, (self.mesh.dp_rank + 1) * self.shard_size)

    def broadcast_params(self) -> None:
        """Gives all dp ranks the parameters of the first one; `arrived` is a digest of them, None without any."""
        if self.mesh.dp > 1:
            self.comm.broadcast(self.flat, self.mesh.dp_group.ranks[0], self.mesh.dp_group)
            self.arrived = digest(self.flat[: self.size])

    def reduce_gradient(self) -> torch.Tensor:
        """The mean gradient over the dp ranks, of the part that this rank updates."""
        mean = self.gradient
        if self.zero:
            mean = self.zero_scatter()
        elif self.mesh.dp > 1:
            self.comm.all_reduce(self.gradient, self.mesh.dp_group)
        return mean.div_(self.mesh.dp)

    def reduced_digest(self) -> int | None:
        """Of the mean that the reduction has just brought, as the call was kept; None where it was not."""
        calls = self.comm.calls if self.mesh.dp > 1 and self.comm.is_keeping else []
        if not calls or isinstance(calls[-1].got, RuntimeError):
            return None
        mean = calls[-1].got / self.mesh.dp
        return digest(mean if mean.numel() == self.gradient[self.owned_slice].numel() else mean[self.owned_slice])

    def zero_scatter(self) -> torch.Tensor:
        """This rank's shard of the sum of all gradients."""
        shard = self.gradient.new_empty(self.shard_size)
        try:
            self.comm.reduce_scatter(shard, self.gradient, self.mesh.dp_group)
        except RuntimeError as error:
            if "not support" not in str(error):
                raise
            # gloo of an older torch, which refuses before it sends anything.
            self.comm.all_reduce(self.gradient, self.mesh.dp_group)
            shard.copy_(self.gradient[self.owned_slice])
        return shard

    def update(self, gradient: torch.Tensor, optimizer: Callable[[torch.Tensor, torch.Tensor], None]) -> None:
        """One optimizer step on the owned part; under ZeRO-1 all dp ranks then exchange their shards."""
        shard = self.flat[self.owned_slice]
        optimizer(shard, gradient)
        if self.zero:
            self.comm.all_gather(self.flat, shard.clone(), self.mesh.dp_group)

    # What events carry.

    def norm_share(self, gradient: torch.Tensor, part: slice = slice(None)) -> float | None:
        """This rank's share of the norm: over the ranks that make up one model, squares sum to the model's square."""
        return finite_or_none((gradient * gradient * self.norm_weights[part]).sum().sqrt())

    def by_name(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        """A copy of a vector like `flat`, by parameter."""
        return {name: flat[span].view(self.weights[name].shape).clone() for name, span in self.spans.items()}

    def error_of(
        self, values: torch.Tensor, reference: dict[str, torch.Tensor] | None, part: slice = slice(None)
    ) -> float | None:
        """How far this part of `flat`, or of its gradient, is from the reference run's, as a share of its norm.

        ``reference``: the whole model's tensors; None where the rank has not computed them.
        """
        return None if reference is None else relative_distance(values, self.share_of(reference)[part])

    def squared_norms(self, change: torch.Tensor) -> dict[str, float | None]:
        """The squared norm of each parameter's change, counted as in `norm_share`."""
        squares = change * change * self.norm_weights
        return {name: finite_or_none(squares[span].sum()) for name, span in self.spans.items()}

    def digests(self) -> dict[str, int]:
        """``params``: of all that the rank holds; ``replicated``: of what all tp ranks must hold alike."""
        replicated = [self.flat[span] for name, span in self.spans.items() if not is_tp_split(name)]
        return {
            "params": digest(self.flat[: self.size]),
            "replicated": digest(torch.cat(replicated)) if replicated else 0,
        }


def sgd(weights: torch.Tensor, gradient: torch.Tensor) -> None:
    """For the training stage: a sum of gradients in place of their mean shows, which Adam would hide."""
    weights.add_(gradient, alpha=-0.5)


class Adam:
    """For the learning stage: ten steps are enough for the loss to fall."""

    def __init__(self) -> None:
        self.steps = 0
        self.mean: Any = 0.0
        self.square: Any = 0.0

    def __call__(self, weights: torch.Tensor, gradient: torch.Tensor) -> None:
        self.steps += 1
        self.mean = 0.9 * self.mean + 0.1 * gradient
        self.square = 0.99 * self.square + 0.01 * gradient * gradient
        scale = (self.square / (1 - 0.99**self.steps)).sqrt() + 1e-8
        weights.sub_(0.02 / (1 - 0.9**self.steps) * self.mean / scale)

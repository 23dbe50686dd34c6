"""The model as users write it, with torch.nn, and with the parameters of `Model`."""

from __future__ import annotations

from collections.abc import Sequence

from doctor.smoke.programs.worker.libraries import torch
from doctor.smoke.programs.worker.parameters import LAYER_PARAMETERS
from doctor.smoke.programs.worker.rng import HEADS, HIDDEN, SEQUENCE_LENGTH, VOCABULARY


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

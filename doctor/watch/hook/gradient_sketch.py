"""Whether a gradient is the mean of the ranks' own, or their sum: numbers that are linear in it. Python 3.8, torch 2.1.

For each parameter the same fixed linear function of its gradient is taken twice: of what this rank's backward pass
gives, and of what the optimizer gets. The mean of the first over all ranks is the second, and so is their sum where
gradients are added. A part of the hook.
"""

from __future__ import annotations

from typing import Any, Iterable

from .digest import local_tensor

ELEMENTS = 4096
"""Of each gradient, evenly spread, that the function reads."""
MAX_PARAMETERS = 256
"""Of the model, from its end: gradients come first there."""
ADAPTIVE = frozenset({"exp_avg_sq", "square_avg"})
"""What optimizers keep whose steps are of the size of their rate."""
_STEPS = 12
_SCALED = ("MulBackward0", "DivBackward0")
_NEUTRAL = ("AliasBackward0", "ToCopyBackward0", "CloneBackward0", "SqueezeBackward0", "ViewBackward0")
_MEANS = ("NllLossBackward0", "NllLoss2DBackward0", "MseLossBackward0", "BinaryCrossEntropyBackward0")
_MEANS_WITH_LOGITS = ("BinaryCrossEntropyWithLogitsBackward0", "SmoothL1LossBackward0", "HuberLossBackward0")


class GradientSketch:
    """Of one step: hooks on parameters add up what the backward passes give; `reduced` reads what became of it."""

    def __init__(self, torch: Any, named: list[tuple[str, Any]]) -> None:
        self.torch = torch
        self.named = [(name, tensor) for name, tensor in named if tensor.requires_grad][-MAX_PARAMETERS:]
        self.local: dict[int, Any] = {}
        self.handles = [
            tensor.register_hook(self._adder(number)) for number, (_, tensor) in enumerate(self.named) if tensor.is_leaf
        ]

    def _adder(self, number: int) -> Any:
        def add(gradient: Any) -> None:
            try:
                with self.torch.no_grad():
                    value = self.functional(gradient)
                    self.local[number] = self.local[number] + value if number in self.local else value
            except Exception:  # no gradient is worth a program's end
                self.local.clear()

        return add

    def functional(self, gradient: Any) -> Any:
        """A fixed linear function of a gradient: a number on its device."""
        flat = gradient.detach().reshape(-1)
        if flat.numel() > ELEMENTS:
            flat = flat[:: flat.numel() // ELEMENTS][:ELEMENTS]
        places = self.torch.arange(flat.numel(), device=flat.device, dtype=self.torch.float32)
        return (flat.float() * self.torch.cos(places * 1.7 + 0.3)).sum()

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()
        self.handles = []

    def values(self) -> list[Any]:
        """Local numbers, then reduced ones, of every parameter that has both; on the parameters' device."""
        with self.torch.no_grad():
            both = [
                (self.local[number], self.functional(tensor.grad))
                for number, (_, tensor) in enumerate(self.named)
                if number in self.local and tensor.grad is not None and not tensor.grad.is_sparse
            ]
        return [local for local, _ in both] + [reduced for _, reduced in both]


def backward_scale(loss: Any, weights: Any) -> tuple[str, float]:
    """As `loss_scale`, with what ``backward`` was given to begin with in the place of 1."""
    kind, factor = loss_scale(loss)
    if isinstance(weights, (list, tuple)):
        weights = weights[0] if len(weights) == 1 else None
    if weights is None or not factor:
        return kind, factor
    if getattr(weights, "numel", lambda: 0)() != 1 or weights.device.type != "cpu":
        return "scaled", 0.0
    return kind, factor * float(weights)


def loss_scale(loss: Any) -> tuple[str, float]:
    """How a loss was made: ``mean``, and the factor that it was multiplied with behind; or what it is instead, and 0.

    Example: ``loss_scale(cross_entropy(out, labels) / 4)`` is ``("mean", 0.25)``.
    """
    node, index, factor = loss.grad_fn, loss.output_nr, 1.0
    for _ in range(_STEPS):
        if node is None:
            return "leaf", 0.0
        name = type(node).__name__
        if name in _SCALED:
            other = getattr(node, "_saved_other", None)
            if other is None or getattr(other, "numel", lambda: 1)() != 1 or len(node.next_functions) < 1:
                return "scaled", 0.0
            if len(node.next_functions) > 1 and node.next_functions[1][0] is not None:
                return "scaled", 0.0
            value = float(other) if not hasattr(other, "device") or other.device.type == "cpu" else 0.0
            if not value:
                return "scaled", 0.0
            factor = factor * value if name == "MulBackward0" else factor / value
            node, index = node.next_functions[0]
        elif name in _NEUTRAL:
            node, index = node.next_functions[0]
        elif name.startswith("_DDPSink") and index < len(node.next_functions):
            node, index = node.next_functions[index]
        elif name == "MeanBackward0":
            return "mean", factor
        elif name in _MEANS or name in _MEANS_WITH_LOGITS:
            return ("mean", factor) if getattr(node, "_saved_reduction", 0) == 1 else ("sum", 0.0)
        else:
            return name[:40], 0.0
    return "long", 0.0


def should_move(torch: Any, optimizers: Iterable[Any], tensor: Any) -> bool:
    """Whether a step with this gradient must change the tensor: it is more than what the tensor's dtype rounds away.

    A bias before a normalization gets gradients that are rounding errors, and a weight near 1 in bfloat16 keeps its
    value at a small rate: neither is at fault. Without an optimizer, or at rate 0, any gradient counts.
    """
    gradient, value = local_tensor(tensor.grad), local_tensor(tensor)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            rate = float(group.get("lr") or 0.0)
            if rate and any(held is tensor for held in group["params"]):
                kept = optimizer.state.get(tensor) or {}
                size = (gradient != 0).to(value.dtype) if kept.keys() & ADAPTIVE else gradient.abs()
                return bool(torch.any(rate * size > value.detach().abs() * torch.finfo(value.dtype).eps))
    return bool(torch.any(gradient != 0))

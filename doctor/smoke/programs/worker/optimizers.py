"""The two optimizers. Each changes the weights in place, given their gradient."""

from __future__ import annotations

from typing import Any

from doctor.smoke.programs.worker.libraries import torch


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

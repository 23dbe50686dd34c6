"""Which rank is the first to compute a number that is not finite."""

from __future__ import annotations

import math

from doctor.smoke.programs.worker.libraries import torch


class NonFiniteTracker:
    """Keeps a sum of each input and each output of a part of the model.

    Sums stay on the device until the step is over. They are taken before a reduction mixes in other ranks' numbers.
    """

    def __init__(self) -> None:
        self.sums: list[tuple[str, torch.Tensor]] = []  # the output's kind, or "" for an input

    def record_input(self, tensor: torch.Tensor) -> None:
        """Adds an input of a part of the model."""
        self.sums.append(("", tensor.detach().sum()))

    def record_output(self, kind: str, tensor: torch.Tensor) -> None:
        """Adds an output: ``activations``, ``loss`` or ``gradient``."""
        self.sums.append((kind, tensor.detach().sum()))

    def origin(self) -> str:
        """The kind of the first output that is not finite although all its inputs are.

        ``input`` where only inputs were not finite; empty where all is finite.
        """
        values = torch.stack([value for _, value in self.sums]).tolist()
        inputs_finite, any_nonfinite = True, False
        for (kind, _), value in zip(self.sums, values):
            finite = math.isfinite(value)
            if kind and inputs_finite and not finite:
                return kind
            inputs_finite = bool(kind) or (inputs_finite and finite)
            any_nonfinite = any_nonfinite or not finite
        return "input" if any_nonfinite else ""

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
        self.passes: list[tuple[int, int]] = []  # of each pass: how many sums were before it, place of its stage

    def begin_pass(self, place: int) -> None:
        """A micro-batch begins to go through this pipeline stage. ``place``: of the stage in the order of the pass."""
        self.passes.append((len(self.sums), place))

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
        values = self.values()
        inputs_finite, any_nonfinite = True, False
        for (kind, _), value in zip(self.sums, values):
            finite = math.isfinite(value)
            if kind and inputs_finite and not finite:
                return kind
            inputs_finite = bool(kind) or (inputs_finite and finite)
            any_nonfinite = any_nonfinite or not finite
        return "input" if any_nonfinite else ""

    def values(self) -> list[float]:
        """All sums, on the CPU."""
        values: list[float] = torch.stack([value for _, value in self.sums]).tolist()
        return values

    def first_at(self) -> list[int] | None:
        """When the first sum was not finite: number of the pass, place of the stage in it, number of the sum there.

        Ranks of one layout compare by it, also those of other pipeline stages. None where all is finite.
        """
        at = next((number for number, value in enumerate(self.values()) if not math.isfinite(value)), None)
        if at is None:
            return None
        begun = [each for each in self.passes if each[0] <= at] or [(0, 0)]
        return [len(begun), begun[-1][1], at - begun[-1][0]]

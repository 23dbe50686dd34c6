"""Whether ranks that print the same loss go on doing so. Pure, in bounded memory.

Ranks of one tensor-parallel or pipeline group, and all ranks where the loss is reduced before it is printed, print the
same number at the same step. Data-parallel ranks print their own batch's: there is nothing to compare. Which of the two
it is, the first steps show; ``--same-loss`` says that it is the first.
"""

from __future__ import annotations

import math
from collections import OrderedDict

import msgspec

LEARNED = 20
"""Steps on which all ranks must agree before a difference is one."""
LEARNED_DIGITS = 4
"""Significant digits of a loss that count for it."""
DIFFERING = 3
"""Steps in a row on which they must then differ."""
TOLERANCE = 1e-4
"""Relative: what the order of additions changes."""
MAX_STEPS = 4096
"""Steps of which not all ranks have told their loss yet."""


class Difference(msgspec.Struct, frozen=True):
    """The first step of those that differ."""

    step: int
    values: dict[int, float]
    outliers: tuple[int, ...]
    """Ranks that differ from a majority of two thirds; empty where there is none."""


class RankAgreement:
    """Takes the losses of all ranks; ``must`` demands that they are equal from the first step."""

    def __init__(self, must: bool = False) -> None:
        self.must = must
        self.ranks: set[int] = set()
        self.equal_steps = 0
        self.differing: Difference | None = None
        self.compared = 0
        """Steps that all ranks told."""
        self._steps: OrderedDict[int, dict[int, tuple[float, int]]] = OrderedDict()
        self._run: list[Difference] = []
        self._independent = False

    def add(self, rank: int, step: int, value: float, digits: int) -> None:
        """One rank's loss. Digits: those that it was printed with."""
        if self._independent or self.differing:
            return
        self.ranks.add(rank)
        losses = self._steps.setdefault(step, {})
        if rank in losses:  # the run has gone back to an earlier step
            losses.clear()
        losses[rank] = (value, digits)
        if len(self.ranks) > 1 and len(losses) == len(self.ranks):
            del self._steps[step]
            self._compare(step, losses)
        elif len(self._steps) > MAX_STEPS:
            self._steps.popitem(last=False)

    def _compare(self, step: int, losses: dict[int, tuple[float, int]]) -> None:
        self.compared += 1
        values = {rank: value for rank, (value, _) in losses.items()}
        tolerance = max(TOLERANCE, *(2 * 10.0 ** (1 - digits) for _, digits in losses.values() if digits))
        if not self.must and self.equal_steps < LEARNED:
            return self._learn(losses, values)
        if _agree(values, tolerance):
            self._run.clear()
            self.equal_steps += 1
            return None
        self._run.append(Difference(step, values, _outliers(values, tolerance)))
        if len(self._run) >= DIFFERING:
            common = set.intersection(*(set(difference.outliers) for difference in self._run))
            self.differing = Difference(self._run[0].step, self._run[0].values, tuple(sorted(common)))
            self._steps.clear()
        return None

    def _learn(self, losses: dict[int, tuple[float, int]], values: dict[int, float]) -> None:
        """To the last printed digit: near its start, each rank's own loss is nearly that of the others."""
        if len(set(values.values())) > 1:
            self._independent = True  # each rank prints the loss of its own data
            self._steps.clear()
        elif min(digits for _, digits in losses.values()) >= LEARNED_DIGITS:
            self.equal_steps += 1


def _agree(values: dict[int, float], tolerance: float) -> bool:
    finite = [value for value in values.values() if math.isfinite(value)]
    if len(finite) < len(values):
        return not finite
    return max(finite) - min(finite) <= tolerance * max(map(abs, finite))


def _outliers(values: dict[int, float], tolerance: float) -> tuple[int, ...]:
    """The ranks outside the majority."""
    if len(values) < 3:
        return ()
    finite = sorted(value for value in values.values() if math.isfinite(value))
    if not finite:
        return ()
    norm = finite[len(finite) // 2]
    outliers = tuple(rank for rank, value in values.items() if not abs(value - norm) <= tolerance * abs(norm))
    return outliers if len(outliers) * 3 <= len(values) else ()

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
MAX_VALUES = 1 << 18
"""Losses that are kept, of the newest steps: the log of another rank may be read after those of the first ones."""


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
        """Steps with a comparison between the losses of several ranks."""
        self._steps: OrderedDict[int, dict[int, tuple[float, int]]] = OrderedDict()
        self._values = 0
        self._compared: dict[int, int] = {}
        """Steps that were compared, and over how many ranks."""
        self._run: list[Difference] = []
        self._independent = False

    def add(self, rank: int, step: int, value: float, digits: int) -> None:
        """One rank's loss. Digits: those that it was printed with."""
        if self._independent or self.differing:
            return
        if rank not in self.ranks:  # whether it prints what the others print is to be learnt with it
            self.ranks.add(rank)
            self.equal_steps = 0
        losses = self._steps.setdefault(step, {})
        if rank in losses:  # the run has gone back to an earlier step
            self._values -= len(losses)
            losses.clear()
            self._compared.pop(step, None)
        losses[rank] = (value, digits)
        self._values += 1
        if len(self.ranks) > 1 and len(losses) == len(self.ranks):
            self._compare(step, losses)
        while len(self._steps) > MAX_STEPS or self._values > MAX_VALUES:
            oldest, gone = self._steps.popitem(last=False)
            self._values -= len(gone)
            self._compared.pop(oldest, None)

    def finish(self) -> None:
        """No more comes: steps that not all ranks told are compared between those that did."""
        for step, losses in sorted(self._steps.items()):
            if not self._independent and not self.differing and len(losses) > max(1, self._compared.get(step, 0)):
                self._compare(step, losses)

    def _compare(self, step: int, losses: dict[int, tuple[float, int]]) -> None:
        self.compared += step not in self._compared
        self._compared[step] = len(losses)
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
            self._forget()
        return None

    def _learn(self, losses: dict[int, tuple[float, int]], values: dict[int, float]) -> None:
        """To the last printed digit: near its start, each rank's own loss is nearly that of the others."""
        if len(set(values.values())) > 1:
            self._independent = True  # each rank prints the loss of its own data
            self._forget()
        elif min(digits for _, digits in losses.values()) >= LEARNED_DIGITS:
            self.equal_steps += 1

    def _forget(self) -> None:
        self._steps.clear()
        self._compared.clear()
        self._values = 0


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

"""What a rule about values finds: the check that reports it, the step and the ranks; and which is the cause. Pure.

1. Roots: defects that no other defect can cause, and every defect that comes before the results of a step.
2. Of results, the first in time: in one step the loss comes before the gradient, its reduction, the update.
3. What comes later, or beside a cause whose rule explains it, is a consequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, TypeVar

import msgspec

from doctor.analysis.values.splits import format_ranges
from doctor.engine.texts import filled

BEFORE_FIRST_STEP = -1
"""The step of what is wrong before the first step."""
Defect = TypeVar("Defect", bound="ValueDefect")
RESULTS = ("smoke-loss-differs", "smoke-gradient-not-synchronised", "smoke-gradient-summed", "smoke-parameters-diverge")
"""The results of a step: every earlier defect shows here as well, unless it was proved by itself (its ``root``)."""
RULES: Mapping[str, tuple[str, ...]] = {
    "smoke-loader-seed-differs": ("smoke-mask-differs", *RESULTS),
    # One batch under two names: by the indices of the loader, and by the rows; and a rank that has fewer of them.
    "smoke-shards-wrong": ("smoke-shards-wrong", "smoke-mask-differs", "smoke-update-missing/no-step", *RESULTS),
    "smoke-mask-repeated": RESULTS,
    "smoke-mask-differs": RESULTS,
    "smoke-parameters-not-broadcast": RESULTS,
    "smoke-update-missing/no-step": ("smoke-update-missing", *RESULTS),
    "smoke-update-missing": RESULTS,
    "smoke-not-finite": RESULTS,
    "smoke-loss-differs": RESULTS,
    "smoke-gradient-not-synchronised": RESULTS,
    # A sum is as wrong on all ranks: none of them differs for it.
    "smoke-gradient-summed": ("smoke-loss-differs",),
    "smoke-loss-differs/gradient": RESULTS,
    "smoke-parameters-diverge": RESULTS,
}
"""By check, or by ``check/kind`` for one kind of its defects: what follows from one of these, named alike. A row stands
before the rows of what it brings about in the same step."""
_PLACES = {name: place for place, name in enumerate(RULES)}


class ValueDefect(msgspec.Struct, frozen=True):
    """A defect; ``check`` is the check whose page tells what to do."""

    check: str
    kind: str
    """Which of the check's faults: defects of one kind are reported once."""
    step: int
    """The first; `BEFORE_FIRST_STEP` for before the first one."""
    ranks: tuple[int, ...]
    """The culprit ranks; empty when all ranks do the same wrong thing."""
    template: str
    values: Mapping[str, object] = {}
    root: bool = False
    """Nothing that is wrong elsewhere can bring it about."""
    tie: bool = False
    """There is no majority: it is one of the ranks, and nothing tells which."""
    level: Literal["error", "warning", "note"] = "error"
    """A note is no finding: it may be meant."""
    inferred: str = ""
    """Why the group should agree, where the program does not say so."""

    @property
    def text(self) -> str:
        text = filled(self.template, who=describe(self.ranks, self.tie), step=self.step, **self.values)
        return filled("{0} (inferred: {1})", text, self.inferred) if self.inferred else text


def describe(ranks: Iterable[int], tie: bool = False) -> str:
    """Ranks in words: ``rank 3``; ``one of ranks 0-1``; ``every rank``."""
    numbers = sorted(set(ranks))
    if not numbers:
        return "every rank"
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    return filled("one of ranks {0}", format_ranges(numbers)) if tie else filled("ranks {0}", format_ranges(numbers))


def rule_of(check: str, kind: str) -> str:
    """The row of a defect: that of its kind, where it has one of its own."""
    kinds = (f"{check}/{kind}", f"{check}/{kind.partition(' ')[0]}")
    return next((name for name in kinds if name in RULES), check)


def explains(cause: tuple[str, str], defect: tuple[str, str]) -> bool:
    """Whether a defect follows from a cause, each by its check and kind.

    >>> explains(("smoke-not-finite", "loss"), ("smoke-parameters-diverge", "data"))
    True
    """
    check, kind = defect
    return (f"{check}/{kind}" if f"{check}/{kind}" in RULES else check) in RULES[rule_of(*cause)]


def separate_causes(defects: Iterable[Defect]) -> tuple[list[Defect], list[tuple[Defect, str]]]:
    """The causes among these defects, and the others, each with the check that holds its cause.

    A defect that is no error explains nothing; of several causes the nearest counts: parameters that were not
    broadcast before batches that are equal.
    """
    causes: list[Defect] = []
    explained: list[tuple[Defect, str]] = []
    for defect in sorted(defects, key=_order):
        possible = () if defect.root else reversed(causes)
        pair = (defect.check, defect.kind)
        errors = (earlier for earlier in possible if earlier.level == "error")
        cause = next((earlier for earlier in errors if explains((earlier.check, earlier.kind), pair)), None)
        if cause:
            explained.append((defect, cause.check))
        else:
            causes.append(defect)
    return causes, explained


def _order(defect: ValueDefect) -> tuple[bool, int, int]:
    place = _PLACES[rule_of(defect.check, defect.kind)]
    is_result = defect.check in RESULTS and not defect.root
    return (is_result, defect.step, place) if is_result else (is_result, place, defect.step)

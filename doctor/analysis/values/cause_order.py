"""Causes among defects of values, told from their consequences. Pure.

1. Roots: defects that no other defect can cause, and every defect that comes before the results of a step.
2. Of results, the first in time: in one step the loss comes before the gradient, its reduction, the update.
3. What comes later, or beside a cause whose rule explains it, is a consequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from doctor.analysis.values.value_defect import ValueDefect

Defect = TypeVar("Defect", bound=ValueDefect)

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

"""Causes among defects of values, told from their consequences. Pure.

1. Roots: defects that no other defect can cause, and every defect that comes before the results of a step.
2. Of results, the first in time: in one step the loss comes before the gradient, its reduction, the update.
3. What comes later, or beside a cause whose rule explains it, is a consequence.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from doctor.analysis.values.rules import RESULTS, explains, rule_of
from doctor.analysis.values.value_defect import ValueDefect

Defect = TypeVar("Defect", bound=ValueDefect)


def separate_causes(defects: Iterable[Defect]) -> tuple[list[Defect], list[tuple[Defect, str]]]:
    """The causes among these defects, and the others, each with the check that holds its cause.

    A defect that is no error explains nothing; of several causes the nearest counts: parameters that were not
    broadcast before batches that are equal.
    """
    causes: list[Defect] = []
    explained: list[tuple[Defect, str]] = []
    for defect in sorted(defects, key=_order):
        possible = () if defect.root else reversed(causes)
        cause = next((earlier for earlier in possible if _explains(earlier, defect)), None)
        if cause:
            explained.append((defect, cause.check))
        else:
            causes.append(defect)
    return causes, explained


def _explains(cause: ValueDefect, defect: ValueDefect) -> bool:
    return cause.level == "error" and explains((cause.check, cause.kind), (defect.check, defect.kind))


def _order(defect: ValueDefect) -> tuple[bool, int, int]:
    place, _ = rule_of(defect.check, defect.kind)
    is_result = defect.check in RESULTS and not defect.root
    return (is_result, defect.step, place) if is_result else (is_result, place, defect.step)

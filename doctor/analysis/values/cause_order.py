"""Causes among defects of values, told from their consequences. Pure.

1. Roots: defects that no other defect can cause, and every defect that comes before the results of a step.
2. Of results, the first in time: in one step the loss comes before the gradient, its reduction, the update.
3. What comes later, or beside a cause whose rule explains it, is a consequence.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeVar

import msgspec

from doctor.analysis.values.value_defect import ValueDefect

Defect = TypeVar("Defect", bound=ValueDefect)


class ValueRule(msgspec.Struct, frozen=True):
    """One rule. Its row stands before the rows of what it brings about in the same step."""

    check: str
    quantity: str
    group: Literal["model", "data", "rank"]
    """``model``: ranks that hold one model together; ``data``: those that train it on different rows."""
    relation: Literal["alike", "different", "mean", "finite", "moved", "reference"]
    explains: tuple[str, ...] = ()
    """Checks whose defects follow from one of these, or ``check/kind`` for one kind of them."""


RESULTS = ("smoke-loss-differs", "smoke-gradient-not-synchronised", "smoke-gradient-summed", "smoke-parameters-diverge")
"""The results of a step: every earlier defect shows here as well, unless it was proved by itself (its ``root``)."""
RULES = (
    ValueRule("smoke-loader-seed-differs", "loader-draws", "model", "alike", ("smoke-mask-differs", *RESULTS)),
    ValueRule(
        "smoke-shards-wrong", "rows", "data", "different",
        # One batch under two names: by the indices of the loader, and by the rows; and a rank that has fewer of them.
        ("smoke-shards-wrong", "smoke-mask-differs", "smoke-update-missing/no-step", *RESULTS),
    ),
    ValueRule("smoke-mask-repeated", "draws", "data", "different", RESULTS),
    ValueRule("smoke-mask-differs", "draws", "model", "alike", RESULTS),
    ValueRule("smoke-parameters-not-broadcast", "initial-parameters", "data", "alike", RESULTS),
    ValueRule("smoke-update-missing/no-step", "updates", "data", "alike", ("smoke-update-missing", *RESULTS)),
    ValueRule("smoke-update-missing", "parameters", "rank", "moved", RESULTS),
    ValueRule("smoke-not-finite", "values", "rank", "finite", RESULTS),
    ValueRule("smoke-loss-differs", "loss", "data", "reference", RESULTS),
    ValueRule("smoke-gradient-not-synchronised", "reduced-gradient", "data", "alike", RESULTS),
    # A sum is as wrong on all ranks: none of them differs for it.
    ValueRule("smoke-gradient-summed", "reduced-gradient", "data", "mean", ("smoke-loss-differs",)),
    ValueRule("smoke-loss-differs/gradient", "gradient-norm", "data", "reference", RESULTS),
    ValueRule("smoke-parameters-diverge", "parameters", "data", "alike", RESULTS),
)  # fmt: skip
_BY_NAME = {rule.check: (place, rule) for place, rule in enumerate(RULES)}


def rule_of(check: str, kind: str) -> tuple[int, ValueRule]:
    """The rule of a defect and its place in the table; that of its kind, where it has a row of its own."""
    return _BY_NAME.get(f"{check}/{kind}") or _BY_NAME.get(f"{check}/{kind.partition(' ')[0]}") or _BY_NAME[check]


def explains(cause: tuple[str, str], defect: tuple[str, str]) -> bool:
    """Whether a defect follows from a cause, each by its check and kind.

    >>> explains(("smoke-not-finite", "loss"), ("smoke-parameters-diverge", "data"))
    True
    """
    check, kind = defect
    _, rule = rule_of(*cause)
    return (f"{check}/{kind}" if f"{check}/{kind}" in _BY_NAME else check) in rule.explains


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

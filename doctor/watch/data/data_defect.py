"""One thing that is wrong with a program's data or values, and how it is put into words. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from doctor.smoke.numerics.defect import format_ranges
from doctor.smoke.numerics.layout_trace import MajoritySplit


class DataDefect(msgspec.Struct, frozen=True):
    """A defect; ``check`` is the smoke run's name for the same thing, whose page tells what to do."""

    check: str
    kind: str
    step: int
    """The first; -1 for before the first one."""
    ranks: tuple[int, ...]
    """The culprit ranks; empty when all ranks do the same wrong thing."""
    template: str
    values: dict[str, Any] = {}
    level: Literal["error", "warning", "note"] = "error"
    """A note is no finding: it may be meant."""
    tie: bool = False
    """There is no majority: it is one of the ranks, and nothing tells which."""
    inferred: str = ""
    """Why the group should agree, where the program does not say so."""

    @property
    def text(self) -> str:
        """The defect in words."""
        text = self.template.format(who=describe(self.ranks, self.tie), step=self.step, **self.values)
        return f"{text} (inferred: {self.inferred})" if self.inferred else text


def describe(ranks: Iterable[int], tie: bool = False) -> str:
    """Ranks in words: ``rank 3``; ``one of ranks 0-1``; ``every rank``."""
    numbers = sorted(set(ranks))
    if not numbers:
        return "every rank"
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    return f"one of ranks {format_ranges(numbers)}" if tie else f"ranks {format_ranges(numbers)}"


def split_values(split: MajoritySplit, group: Iterable[int]) -> dict[str, Any]:
    """Whom the ranks differ from, for a template."""
    return {"group": format_ranges(group), "agree": len(split.agreeing)}

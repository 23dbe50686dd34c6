"""What a rule about values finds: the check that reports it, the step and the ranks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from doctor.analysis.values.splits import format_ranges
from doctor.engine.texts import filled

BEFORE_FIRST_STEP = -1
"""The step of what is wrong before the first step."""


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

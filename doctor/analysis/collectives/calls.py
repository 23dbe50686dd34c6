"""The table of collective calls that every source fills, and what it shows: who differs, and who is behind. Pure.

A source knows a part: a stack has operations, a log the last number, a flight recorder all of it. Where two values
differ, the value of the majority of the ranks is right; without a majority, no rank is named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from operator import methodcaller
from typing import Generic, Literal, TypeVar

import msgspec

from doctor.analysis.majority import Split, split

Member = TypeVar("Member")
OPERATIONS = {
    "_engine_run_backward": "all_reduce",
    "_sync_buffers": "broadcast",
    "_verify_param_shape_across_processes": "all_gather",
}
"""The collective that torch calls in a function of its own: of DDP its reducer in the backward pass, its buffers in the
forward pass, its constructor. Source: pytorch torch/nn/parallel/distributed.py and c10d/reducer.cpp."""
Aspect = Literal["operation", "size", "sequence"]
"""What calls are compared by."""


class Call(msgspec.Struct, Generic[Member]):
    """One call of one rank, as far as its source shows it; None: not known."""

    member: Member
    """Who made it: a rank, or what the source has of it, with which it words the result."""
    sequence: int | None = None
    """Its number in its group: of the first that has not ended, else of the last that the rank has entered."""
    operation: str | None = None
    size: str | None = None
    """Elements, bytes or shapes, as far as they must be equal on all ranks."""
    entered: int | None = None
    """The number of the last call that the rank has entered, where it may enter calls before earlier ones end."""

    def value(self, aspect: Aspect) -> int | str | None:
        return {"operation": self.operation, "size": self.size, "sequence": self.sequence}[aspect]


def differing(
    calls: Collection[Call[Member]], aspects: Iterable[Aspect] = ("operation", "size")
) -> tuple[Aspect, Split[Call[Member]]] | None:
    """The first aspect in which calls of one number differ; calls without a value of the aspect are left out.

    >>> calls = [Call(rank, operation=name) for rank, name in enumerate(["barrier", None, "send", "barrier"])]
    >>> aspect, parts = differing(calls)
    >>> aspect, [call.member for call in parts.differing]
    ('operation', [2])
    """
    for aspect in aspects:
        comparable = [call for call in calls if call.value(aspect) is not None]
        parts = split(comparable, methodcaller("value", aspect))
        if parts:
            return aspect, parts
    return None


class Lag(msgspec.Struct, frozen=True):
    """How far ranks of one group have come."""

    lowest: int
    highest: int
    behind: int
    """How many are at the lowest number."""
    total: int

    @property
    def named(self) -> bool:
        """Those behind are fewer than the others, or one of two: half of the ranks may wait for the other half."""
        return 2 * self.behind < self.total + (self.total == 2)


def lag(positions: Mapping[int, int]) -> Lag | None:
    """Ranks behind the others, from how many ranks are at each number; None where all are at one.

    >>> lag({6: 3, 5: 1}).named, lag({6: 2, 5: 2}).named, lag({6: 1, 5: 1}).named, lag({6: 4})
    (True, False, True, None)
    """
    if len(positions) < 2:
        return None
    lowest = min(positions)
    return Lag(lowest, max(positions), positions[lowest], sum(positions.values()))


def behind(calls: Collection[Call[Member]], *, half: bool = False) -> tuple[Lag, list[Call[Member]]] | None:
    """The calls at the lowest number, of those whose number is known, where their ranks can be named.

    ``half``: also where they are one half; those of the other half have timed out on them, and not only waited.
    A rank that has entered the collective in which the others wait is not behind, even if it has not seen the end of
    earlier ones.

    >>> calls = [Call(0, 121, entered=124), Call(1, 120, entered=120)]
    >>> [call.member for call in behind(calls)[1]], behind([calls[0], Call(1, 120, entered=124)])
    ([1], None)
    """
    comparable = [call for call in calls if call.sequence is not None]
    result = lag(Counter(call.sequence or 0 for call in comparable))
    if result is None or not (result.named or (half and 2 * result.behind == result.total)):
        return None
    late = [call for call in comparable if call.sequence == result.lowest]
    return None if any((call.entered or 0) >= result.highest for call in late) else (result, late)


def common_call(calls: Collection[Call[Member]], size: int) -> Call[Member] | None:
    """The call in which all ``size`` ranks of a group are, as far as all are known to be in the same; else None.

    >>> calls = [Call(rank, 121, "all_reduce", "8", entered=124) for rank in (0, 1)]
    >>> common_call(calls, 2).sequence, common_call(calls, 3), common_call([*calls, Call(2, 121)], 3)
    (121, None, None)
    """
    first = next(iter(calls), None)
    if first is None or len(calls) != size or size < 2 or first.sequence is None or first.operation is None:
        return None
    alike = {(call.sequence, call.operation, call.size) for call in calls}
    return first if len(alike) == 1 and all((call.entered or 0) >= first.sequence for call in calls) else None


def few_silent(silent: Collection[object], waiting: int) -> bool:
    """Whether ranks without information can be named while ``waiting`` ranks wait: not when they are the larger part.

    >>> few_silent([3], 1), few_silent([2, 3], 3), few_silent([], 3)
    (True, False, False)
    """
    return 0 < len(silent) <= max(1, waiting // 2)

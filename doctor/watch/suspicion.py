"""Ranks that a limit of time speaks against, until their stacks show that they are still in the same place. Pure.

The steps, and the collectives that its ranks repeat, show that a training goes on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping

import msgspec

from doctor.engine.texts import filled
from doctor.smoke.model import Collective

MOST_UNANSWERED = 5
"""Times that a rank's stack is asked for before the rank is named without it."""


class StackPending(Exception):
    """A stack was asked for on another host, and may still come."""


class Suspicion(msgspec.Struct):
    """Ranks that a time limit speaks against, and what their stacks said.

    A rank may go on between the look at its page and the look at its stack: only the next look at its page shows that
    the stack is of the place where it is stuck.
    """

    signs: tuple[tuple[int, int], ...] = ()
    """Each rank with the stamp of its last sign: with a new one, the suspicion begins anew."""
    confirmed: bool = False
    """Whether their stacks were read."""
    unanswered: int = 0

    def confirm(self, stack: Callable[[int], str | None]) -> bool:
        """Whether the ranks gave no sign since their stacks were read. ``stack``: as in `TrainingWatch.judge`."""
        if self.confirmed:
            return True
        stacks = []
        for rank, _ in self.signs:
            with contextlib.suppress(StackPending):
                stacks.append(stack(rank))
        if len(stacks) < len(self.signs):
            return False
        if None in stacks and self.unanswered < MOST_UNANSWERED:
            self.unanswered += 1
        else:
            self.confirmed = True
        return False


ROUNDS = 3
"""Times that a rank must have made the same call for it to be past its first step, where no optimizer steps."""
MOST_DIFFERENT = 4096
"""Different calls of a rank that are counted, at most."""


class CallRepeats:
    """How often each rank made each of its calls."""

    def __init__(self) -> None:
        self._by_rank: dict[int, dict[tuple[object, ...], int]] = {}

    def add(self, rank: int, calls: Iterable[Collective]) -> None:
        """Counts calls that are new."""
        repeats = self._by_rank.setdefault(rank, {})
        for call in calls:
            same = call.group, call.op, call.dtype, call.common_size, call.root
            if same in repeats or len(repeats) < MOST_DIFFERENT:
                repeats[same] = repeats.get(same, 0) + 1

    def goes_round(self, rank: int) -> bool:
        """Whether it repeats a collective, as a program without an optimizer does."""
        return max(self._by_rank.get(rank, {}).values(), default=0) >= ROUNDS

    def reached(self, steps: Mapping[int, int]) -> str:
        """Where the last of the ranks is. ``steps``: of each."""
        if step := min(steps.values(), default=0):
            return filled("training step {0}", step)
        return filled("collective {0}", min((sum(repeats.values()) for repeats in self._by_rank.values()), default=0))

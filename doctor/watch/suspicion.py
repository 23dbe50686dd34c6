"""Ranks that a limit of time speaks against, until their stacks show that they are still in the same place. Pure."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import msgspec

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

"""Which of several ranks died first, from when each was last seen alive and when it was found dead. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

import msgspec

SAME_LOOK = 0.01
"""Seconds between two ends that were found at once: which came first is not known."""


class EndCause(IntEnum):
    """How much the way in which a rank ended speaks for a cause of its own, the more the higher."""

    INFLICTED = 0
    """As ranks end after another: by a launcher's SIGTERM, or by an error of a broken connection."""
    UNKNOWN = 1
    """An abort, an exit without an error, or an end whose exit status could not be read."""
    GENUINE = 2
    """A crash, an error or SIGKILL, which is no launcher's first signal."""
    WAITED = 3
    """The error of one that waited for another, which was there and had not come."""


class Death(msgspec.Struct, frozen=True):
    """The end of a rank: some time from when it was last seen alive until it was found dead."""

    alive_at: float
    found_at: float
    cause: EndCause = EndCause.GENUINE

    def precedes(self, other: Death) -> bool:
        """Whether it came first.

        It did where the other rank was seen alive after this one was found dead. Where both intervals overlap, the
        order was not observed: the death that more likely has a cause of its own counts as the first; of two with equal
        causes, the one that was found earlier. Ends that were found at the same time are a tie.

        >>> killed, ended = Death(2.0, 3.0, EndCause.GENUINE), Death(2.0, 2.5, EndCause.INFLICTED)
        >>> killed.precedes(ended), ended.precedes(killed), ended.precedes(Death(2.6, 3.0, EndCause.GENUINE))
        (True, False, True)
        """
        if other.alive_at > self.found_at + SAME_LOOK or self.alive_at > other.found_at + SAME_LOOK:
            return self.found_at < other.found_at
        if self.cause != other.cause:
            return self.cause > other.cause
        return self.found_at < other.found_at - SAME_LOOK


def follows(death: Death, others: Iterable[Death]) -> bool:
    """Whether any of the others came first."""
    return any(other.precedes(death) for other in others)

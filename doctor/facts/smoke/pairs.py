"""The pairs stage: every pair of hosts in turn, one exchange at a time."""

from __future__ import annotations

from doctor.engine.fact import Answer, Fact, smoke
from doctor.facts.smoke.events import Event, Told, hear, only


class Paired(Event, frozen=True, tag="pair"):
    """The times of one rank's exchanges with one peer in one round."""

    peer: int
    round: int
    bytes: int
    seconds: tuple[float, ...]
    confirm: bool = False
    """Measured again, with no other pair at work."""


class SmokePairs(Fact, frozen=True):
    """How long exchanges with single peers took."""

    probe = smoke()

    pairs: tuple[Paired, ...] = ()

    @classmethod
    def read(cls, answer: Answer) -> SmokePairs:
        told = hear(answer, Told[Paired])
        return cls(pairs=only(told.events, Paired), unread=told.silent())

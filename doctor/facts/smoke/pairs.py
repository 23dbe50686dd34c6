"""The pairs stage: every pair of hosts in turn, one exchange at a time."""

from __future__ import annotations

from doctor.engine.fact import ProbeAnswer
from doctor.facts.smoke.events import RankEvent, StageFact, events_of_type


class PairTimes(RankEvent, frozen=True, tag="pair"):
    """The times of one rank's exchanges with one peer in one round."""

    peer: int
    round: int
    bytes: int
    seconds: tuple[float, ...]
    confirm: bool = False
    """Measured again, with no other pair at work."""
    control: bool = False
    """A pair that is not suspected, measured by turns with those that are."""
    attempt: int = 0
    """Number of the confirmation, from 1 on: what is slow is measured again at several times."""


class SmokePairs(StageFact, frozen=True):
    """How long exchanges with single peers took."""

    stage = "pairs"
    event_types = (PairTimes,)

    pairs: tuple[PairTimes, ...] = ()

    @classmethod
    def read(cls, answer: ProbeAnswer) -> SmokePairs:
        report = cls.read_report(answer)
        return cls(pairs=events_of_type(report.events, PairTimes), unread=report.unread_ranks())

"""What the visit itself tells of a host: whether it was reached, and what its clock said."""

from __future__ import annotations

from doctor.engine.fact import Absent, Answer, Fact, not_reached, visit


class Reach(Fact, frozen=True):
    """Whether the collector ran on the host, and if not, why."""

    probe = visit()

    trouble: str
    """Empty, or a `doctor.transport.Trouble`."""
    text: str
    hint: str

    @classmethod
    def read(cls, answer: Answer) -> Reach:
        seen = answer.visit
        return cls(trouble=seen.trouble, text=seen.text, hint=seen.hint)


class Clock(Fact, frozen=True):
    """How far the host's clock is from ours: a range that surely holds the difference, in seconds.

    The host began after we sent and ended before we received, so the difference (host minus controller) lies
    between ``ended - received`` and ``began - sent``, whatever the network did. No symmetry is assumed.
    """

    probe = visit()

    least: float
    most: float

    @classmethod
    def read(cls, answer: Answer) -> Clock:
        seen = answer.visit
        if seen.trouble:
            raise not_reached(seen.trouble, seen.text)
        if seen.local:
            raise Absent("the host looked at itself: no other clock was read beside its own")
        return cls(least=seen.ended - seen.received, most=seen.began - seen.sent)

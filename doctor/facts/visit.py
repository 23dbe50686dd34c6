"""What the visit itself shows of a host: whether it was reached, and its clock."""

from __future__ import annotations

from doctor.engine.fact import Absent, Fact, ProbeAnswer, Unreadable, not_reached, visit
from doctor.engine.quantities import number_text
from doctor.engine.texts import filled


class Reachability(Fact, frozen=True):
    """Whether the collector ran on the host, and if not, why."""

    probe = visit()

    failure: str
    """Empty, or a `doctor.transport.TransportErrorKind`."""
    text: str
    hint: str
    address: str = ""
    """By which SSH reached it, or tried to where it has one alone; empty where that is not known."""
    local: bool = False
    """It is the host that doctor itself runs on."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> Reachability:
        host_visit = answer.visit
        if host_visit.address:
            from doctor.engine.addresses import plain_address

            plain_address(host_visit.address)
        return cls(
            failure=host_visit.failure,
            text=host_visit.text,
            hint=host_visit.hint,
            address=host_visit.address,
            local=host_visit.local,
        )


MAX_CLOCK_RATE = 1.001
"""How much faster than ours a working clock may run while it is adjusted."""
MAX_CLOCK_ERROR = 0.05
"""Seconds by which two readings may be wrong."""


class ClockOffset(Fact, frozen=True):
    """How far the host's clock is from ours: a range that surely holds the difference, in seconds.

    The host began after we sent and ended before we received, so the difference (host minus controller) lies
    between ``ended - received`` and ``began - sent``, with any delays in the network. No symmetry is assumed.
    """

    probe = visit()

    minimum: float
    maximum: float

    @classmethod
    def read(cls, answer: ProbeAnswer) -> ClockOffset:
        host_visit = answer.visit
        if host_visit.failure:
            raise not_reached(host_visit.failure, host_visit.text)
        if host_visit.local:
            raise Absent("the host checked itself: no second clock was read for comparison")
        on_host, all_in_all = host_visit.ended - host_visit.began, host_visit.received - host_visit.sent
        if not 0 <= on_host <= all_in_all * MAX_CLOCK_RATE + MAX_CLOCK_ERROR:
            raise Unreadable(
                filled(
                    "by the host's clock its visit took {0} s; expected 0 to {1} s",
                    number_text(on_host),
                    number_text(all_in_all),
                )
            )
        return cls(minimum=host_visit.ended - host_visit.received, maximum=host_visit.began - host_visit.sent)

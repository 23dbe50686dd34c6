"""What passes between the hosts of a watched job, one line of JSON each: news to the leader, orders and verdicts back.

Hosts are not trusted: each line is bounded and checked before it is used, and a host speaks for its own ranks alone.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from doctor.engine.decoding import prepare_decoding
from doctor.smoke.model import MOST_CALLS, Number, RankMoment, Seconds, Word
from doctor.watch.pace import MOST_WAITING, Entry, StepTimes
from doctor.watch.paths import MOST_PATHS

PROTOCOL = "watch 2"
Text = Annotated[str, msgspec.Meta(max_length=1000)]


class WatchedMoment(RankMoment, frozen=True):
    """The same of a watched rank, and how it gets on."""

    error: Text = ""
    rest: Seconds = -1.0
    """Seconds since its processes last got on; -1: not known."""
    effort: Word = ""
    """By what they get on; empty: they rest."""
    died_at: Seconds = 0.0
    """When its end was noticed, by the host's monotonic clock."""
    times: tuple[Number, Number, Number] | None = None
    """Nanoseconds of compute, in collectives, of input."""
    cpu_wait: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    """Share of its time in which it waited for a CPU."""
    cpu_seconds: Seconds = 0.0
    """For which its threads and children waited for one, together."""
    paths: Annotated[tuple[tuple[Word, Word, Seconds, Seconds], ...], msgspec.Meta(max_length=MOST_PATHS)] = ()
    """See `doctor.watch.paths.PathRow`."""


class RankNews(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is new of one rank."""

    rank: Number
    events: tuple[dict[str, object], ...] = ()
    """As its hook wrote them."""
    moment: WatchedMoment | None = None
    entries: Annotated[tuple[Entry, ...], msgspec.Meta(max_length=4 * MOST_CALLS)] = ()
    steps: Annotated[tuple[StepTimes, ...], msgspec.Meta(max_length=MOST_WAITING)] = ()
    """That it has ended."""


class HostNews(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of a host to the leader; empty: the host is still there."""

    news: RankNews | None = None
    stacks: dict[Number, Annotated[str, msgspec.Meta(max_length=1 << 17)]] | None = None
    """The answer to an order: by rank; an empty text where the rank writes none."""
    pong: tuple[Seconds, Seconds] | None = None
    """The leader's time in an order, and the host's own monotonic clock when it came."""
    over: bool = False
    """All ranks of the host have ended."""


class FleetVerdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the leader decided on a training."""

    code: Annotated[int, msgspec.Meta(ge=0, le=255)]
    """Exit code of the report; 0: nothing was found."""
    headline: Text = ""
    place: Text = ""
    """Where the report is."""
    hang: bool = False


class FleetOrder(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the leader to a host."""

    ping: Seconds = 0.0
    """The leader's clock, to be sent back at once."""
    stacks: tuple[Number, ...] = ()
    """Ranks whose stacks are asked for."""
    verdict: FleetVerdict | None = None
    refused: Text = ""
    """Why the leader does not take this host's word."""


prepare_decoding(HostNews, FleetOrder)

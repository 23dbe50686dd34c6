"""What became slower while a soak went on: a rank's work beside its peers', and the collective of all ranks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median

import msgspec

from doctor.analysis.outliers.peers import MIN_TIMES, Straggler, find_confirmed_stragglers
from doctor.facts.smoke.collectives import SmokeCollectives, SoakInterval
from doctor.smoke.speed.link_speeds import quick_one

PARTS = 4
"""Of the soak; a rank is slow in one of them when each of its intervals shows it."""
MIN_INTERVALS = 2
"""Of a part."""
FLEET_SLOWER = 2.0
"""Times as long as in the first part, in every interval of the last: gloo on a busy host varies by half."""
BRIEFLY_SLOWER = 10.0
"""The same of an interval that others follow which may be as quick as before: other programs come and go."""
MIN_CALLS = 8
"""Calls of the collective in an interval whose quickest are compared; of fewer, each counts for its share of them."""


class SlowPart(msgspec.Struct, frozen=True):
    """A rank that was slower than its peers in a part of the soak."""

    slow: Straggler
    start: float
    """Seconds since the soak began."""
    end: float


class FleetDrift(msgspec.Struct, frozen=True):
    """The collective of all ranks became slower."""

    ratio: float
    seconds: float
    first_seconds: float
    bytes: int
    start: float
    """Seconds since the soak began, from which on it was slow."""
    end: float = 0.0
    """Until when; 0: it stayed so."""


def intervals_of(collectives: Mapping[str, SmokeCollectives]) -> dict[int, dict[int, SoakInterval]]:
    """By number of the interval, in order, and by rank."""
    events_by_number: dict[int, dict[int, SoakInterval]] = {}
    for event in (event for fact in collectives.values() for event in fact.intervals):
        events_by_number.setdefault(event.number, {}).setdefault(event.rank, event)
    return dict(sorted(events_by_number.items()))


def soak_parts(numbers: Iterable[int]) -> list[list[int]]:
    """The intervals in `PARTS` parts; fewer where each would have less than `MIN_INTERVALS`; none of none.

    >>> soak_parts(range(9)), soak_parts(range(3)), soak_parts([])
    ([[0, 1], [2, 3], [4, 5], [6, 7, 8]], [[0, 1, 2]], [])
    """
    ordered = sorted(numbers)
    count = max(1 if ordered else 0, min(PARTS, len(ordered) // MIN_INTERVALS))
    return [ordered[len(ordered) * part // count : len(ordered) * (part + 1) // count] for part in range(count)]


def slow_in_soak(collectives: Mapping[str, SmokeCollectives], devices: Mapping[int, str]) -> dict[int, SlowPart]:
    """The ranks that were slower than their peers in a part of the soak, with the part in which they were slowest.

    ``devices``: what each rank computes on; those with the same are peers.
    """
    by_number = intervals_of(collectives)
    slow_parts: dict[int, SlowPart] = {}
    for numbers in soak_parts(by_number):
        for device in sorted(set(devices.values()) or {""}):
            measurements = [
                {
                    rank: event.compute
                    for rank, event in by_number[number].items()
                    if devices.get(rank, "") == device and len(event.compute) >= MIN_TIMES
                }
                for number in numbers
            ]
            last = max((event.start + event.seconds for event in by_number[numbers[-1]].values()), default=0.0)
            first = min((event.start for event in by_number[numbers[0]].values()), default=0.0)
            for rank, slow in find_confirmed_stragglers(measurements).items():
                if rank not in slow_parts or slow.ratio > slow_parts[rank].slow.ratio:
                    slow_parts[rank] = SlowPart(slow, first, last)
    return dict(sorted(slow_parts.items(), key=lambda item: -item[1].slow.ratio))


def quickest_reduce(events: Iterable[SoakInterval]) -> tuple[float, float]:
    """Seconds that all_reduce took where nothing disturbed it, on the slowest rank, and what is sure of them."""
    return max(
        (
            (seconds := quick_one(event.reduce), seconds * min(1.0, len(event.reduce) / MIN_CALLS))
            for event in events
            if event.reduce
        ),
        default=(0.0, 0.0),
    )


def fleet_drift(collectives: Mapping[str, SmokeCollectives]) -> FleetDrift | None:
    """Whether the collective of all ranks became slower than in the first part, in each interval of the last part.

    Or many times as slow in intervals before: the first of those, and the ones that follow without a gap.
    """
    by_number = intervals_of(collectives)
    times = {number: quick for number, events in by_number.items() if (quick := quickest_reduce(events.values()))[0]}
    parts = [[number for number in part if number in times] for part in soak_parts(by_number)]
    if len(parts) < 2 or len(parts[0]) < MIN_INTERVALS:
        return None
    before = max(times[number][0] for number in parts[0])
    slow, lasts = parts[-1], True
    if len(slow) < MIN_INTERVALS or min(times[number][1] for number in slow) < FLEET_SLOWER * before:
        later = [number for number in times if number not in parts[0]]
        brief = [number for number in later if times[number][1] >= BRIEFLY_SLOWER * before]
        slow, lasts = [number for place, number in enumerate(brief) if number - place == brief[0]], False
    if not slow or slow == [max(times)]:
        return None
    usual, usual_before = (median(times[number][0] for number in part) for part in (slow, parts[0]))
    events = [event for number in slow for event in by_number[number].values()]
    start, size = min(event.start for event in events), max(event.bytes for event in events)
    end = 0.0 if lasts else max(event.start + event.seconds for event in events)
    return FleetDrift(usual / usual_before, usual, usual_before, size, start, end)

"""The soak stage minute by minute, from its ranks' events. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from doctor.engine.smoke_summary import HostTemperature, LinkErrors, SoakMinute
from doctor.facts.smoke import SmokeCollectives
from doctor.facts.smoke.collectives import SoakInterval
from doctor.smoke.model import SmokeRun
from doctor.smoke.speed.soak_drift import intervals_of

MOST_ENTRIES = 64
"""Hosts, and counters, that one interval has."""


def soak_minutes(run: SmokeRun, collectives: Mapping[str, SmokeCollectives]) -> tuple[SoakMinute, ...]:
    """In order; without what ranks that are not in the plan tell."""
    world = run.plan.world
    return tuple(
        _minute(run, {rank: event for rank, event in by_rank.items() if 0 <= rank < world})
        for by_rank in intervals_of(collectives).values()
        if any(0 <= rank < world for rank in by_rank)
    )


def _minute(run: SmokeRun, by_rank: Mapping[int, SoakInterval]) -> SoakMinute:
    events, world = by_rank.values(), len(by_rank)
    work = {rank: median(event.compute) for rank, event in by_rank.items() if event.compute}
    reduce = max((median(event.reduce) for event in events if event.reduce), default=0.0)
    slowest = max(work, key=lambda rank: work[rank], default=-1)
    host_events = [(run.plan.host_of(rank), event) for rank, event in sorted(by_rank.items())]
    heat = [
        HostTemperature(host, max(event.temperatures.values())) for host, event in host_events if event.temperatures
    ]
    errors = [LinkErrors(host, name[:80], count) for host, event in host_events for name, count in event.errors.items()]
    size = max(event.bytes for event in events)
    return SoakMinute(
        start=min(event.start for event in events),
        seconds=max(event.seconds for event in events),
        calls=max(event.calls for event in events),
        wrong=sum(max(0, event.wrong) for event in events),
        work=median(work.values()) if work else 0.0,
        slowest_rank=slowest,
        slowest_work=work.get(slowest, 0.0),
        busbw=2 * (world - 1) / world * size / reduce if reduce > 0 else 0.0,
        temperatures=tuple(heat[:MOST_ENTRIES]),
        link_errors=tuple(errors[:MOST_ENTRIES]),
    )

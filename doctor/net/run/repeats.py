"""What a prober's report of a speed is worth. Pure.

Paths that look slow are measured again beside one that does not, since a busy machine slows both.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from doctor.analysis.outliers.pairs import Path
from doctor.net.matrix import PathSpeed
from doctor.net.run.sessions import SpeedReport

DISTURBED_RATIO = 1.5
"""Times slower than at first the path beside it is, from which on a measurement says nothing of speed."""


def path_beside(path: Path, speeds: Sequence[PathSpeed], suspected: Collection[Path], turn: int) -> PathSpeed | None:
    """The first measurement of a path that does not look slow.

    In even turns it has the same source, else the same target. Where there is none of that side, one of the other; None
    where all look slow.
    """
    first: dict[Path, PathSpeed] = {}
    for speed in speeds:
        first.setdefault((speed.source, speed.target), speed)
    usual = {other: speed for other, speed in first.items() if other not in suspected and other[::-1] != path}
    sides = [[speed for other, speed in usual.items() if other[side] == path[side]] for side in (0, 1)]
    side = turn % 2
    candidates = sides[side] or sides[1 - side] or list(usual.values())
    return candidates[turn // 2 % len(candidates)] if candidates else None


def is_disturbed(first: PathSpeed, now: PathSpeed) -> bool:
    """Whether a path is clearly slower than at first: then something slows more than the path that is measured."""
    pairs = [
        (now.throughput_single, first.throughput_single),
        (now.throughput_multi, first.throughput_multi),
        (first.latency_median, now.latency_median),
    ]
    return any(less is not None and more and less * DISTURBED_RATIO <= more for less, more in pairs)


def as_disturbed(report: SpeedReport) -> SpeedReport:
    """The report of a measurement whose throughput and usual latency do not count."""
    single, multi = (
        msgspec.structs.replace(part, waited=part.seconds) if part else None for part in (report.single, report.multi)
    )
    return msgspec.structs.replace(report, single=single, multi=multi)


def is_certain(report: SpeedReport) -> bool:
    """Whether it has the rate at which packets arrived, which counts however busy the hosts were."""
    return any(part is not None and part.arrival for part in (report.single, report.multi))


def speed_values(report: SpeedReport) -> dict[str, Any]:
    """The fields of a `PathSpeed` but for its source; without those that were not measured."""
    latencies = sorted(report.latencies)
    parts = [part for part in (report.single, report.multi) if part]
    measured = {
        "target": report.host,
        "latency_median": latencies[len(latencies) // 2] if latencies else None,
        "latency_p99": latencies[len(latencies) * 99 // 100] if latencies else None,
        "throughput_single": report.single.rate if report.single else None,
        "throughput_multi": report.multi.rate if report.multi else None,
        "retransmissions": sum(part.again for part in parts) if parts else None,
        "bytes": sum(part.bytes for part in parts),
        "latency_least": latencies[0] if latencies else None,
        "arrival_single": (report.single and report.single.arrival) or None,
        "arrival_multi": (report.multi and report.multi.arrival) or None,
        "waited": max((min(1.0, part.waited / part.seconds) for part in parts if part.seconds), default=None),
    }
    return {name: value for name, value in measured.items() if value is not None}


def path_speed(source: int, report: SpeedReport) -> PathSpeed:
    """The speed from the host of that number."""
    return PathSpeed(source, **speed_values(report))

"""A prober's report of a speed, as the values of a `PathSpeed`. Pure."""

from __future__ import annotations

from typing import Any

from doctor.net.matrix import PathSpeed
from doctor.net.run.sessions import SpeedReport


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

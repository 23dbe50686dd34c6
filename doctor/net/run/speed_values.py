"""A prober's report of a speed, as the values of a `PathSpeed`. Pure."""

from __future__ import annotations

from typing import Any

from doctor.net.matrix import PathSpeed
from doctor.net.run.sessions import SpeedReport


def speed_values(report: SpeedReport) -> dict[str, Any]:
    """Target, median and 99th percentile of the latency in seconds, bytes a second, segments sent again, bytes sent."""
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
    }
    return {name: value for name, value in measured.items() if value is not None}


def path_speed(source: int, report: SpeedReport) -> PathSpeed:
    """The speed from the host of that number."""
    return PathSpeed(source, **speed_values(report))

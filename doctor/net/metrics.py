"""A network test as Prometheus metrics: a few series a host, never one a pair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from prometheus_client import CollectorRegistry, Gauge

from doctor.engine.sanitize import strip_control_chars
from doctor.net.cause import NetworkCause
from doctor.net.matrix import FAILING, Matrix, columns
from doctor.net.slow_paths import SlowPath

MAX_NAME = 100


def add_metrics(
    registry: CollectorRegistry, matrix: Matrix, causes: Sequence[NetworkCause] = (), slow: Sequence[SlowPath] = ()
) -> None:
    """Adds the metrics of a network test to a report's registry.

    ``doctor_net_attempts`` by host, role (source or target) and result (open, failed, unknown);
    ``doctor_net_answered``; ``doctor_net_causes``, those that name the host and are certain;
    ``doctor_net_latency_seconds`` and ``doctor_net_throughput_bytes_per_second``, the host's middle values as a source;
    ``doctor_net_slow_ratio``.
    """
    names = [strip_control_chars(name, MAX_NAME) for name in matrix.hosts]
    attempts = Gauge(
        "doctor_net_attempts",
        "Attempts of the network test by result: open, failed, unknown.",
        ("host", "role", "result"),
        registry=registry,
    )
    for role, rows in (("source", matrix.rows), ("target", tuple(tuple(columns(port)) for port in matrix.rows))):
        for host, name in enumerate(names):
            for result, letters in (("open", "o"), ("failed", FAILING), ("unknown", "?!")):
                number = sum(port[host].count(letter) for port in rows for letter in letters)
                attempts.labels(name, role, result).inc(number)
    answered = Gauge("doctor_net_answered", "1: the host answered the network test.", ("host",), registry=registry)
    silent = {names[host] for host in matrix.silent}
    for name in names:
        answered.labels(name).set(name not in silent)
    blamed = Counter(host for cause in causes if cause.certain for host in cause.accused)
    number_of = Gauge(
        "doctor_net_causes", "Causes of network failures that name the host.", ("host",), registry=registry
    )
    for host, name in enumerate(names):
        number_of.labels(name).inc(blamed[host])
    _speeds(registry, matrix, names, slow)


def _speeds(registry: CollectorRegistry, matrix: Matrix, names: Sequence[str], slow: Sequence[SlowPath]) -> None:
    for metric, field, text in (
        ("latency_seconds", "latency_median", "Middle round trip from the host to others, in seconds."),
        ("throughput_bytes_per_second", "throughput_multi", "Middle throughput from the host to others."),
    ):
        values: dict[int, list[float]] = {}
        for speed in matrix.speeds:
            if (value := getattr(speed, field)) is not None:
                values.setdefault(speed.source, []).append(value)
        if values:
            gauge = Gauge(f"doctor_net_{metric}", text, ("host",), registry=registry)
            for host, measured in sorted(values.items()):
                gauge.labels(names[host]).set(median(measured))
    if slow:
        ratio = Gauge("doctor_net_slow_ratio", "Times slower than its peers.", ("host", "figure"), registry=registry)
        for outlier in sorted(slow, key=lambda outlier: outlier.ratio):
            for host in outlier.hosts if outlier.kind == "host" else ():
                ratio.labels(names[host], outlier.figure).set(outlier.ratio)

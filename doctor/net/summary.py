"""A network test as the report's summary, and back. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

import msgspec
from prometheus_client import CollectorRegistry, Gauge

from doctor.engine.fact import PerHost, Unreadable
from doctor.engine.report_parts import NetSummary
from doctor.engine.sanitize import strip_control_chars
from doctor.facts.network_test import NetworkAnswer
from doctor.net.assemble import assemble_matrix
from doctor.net.cause import NetworkCause
from doctor.net.matrix import FAILING, Matrix, PathSpeed, TestedPort, columns
from doctor.net.slow_paths import SlowPath

WORTH_A_MAP = FAILING + "?!v"
MAX_NAME = 100


def summarise_test(answers: PerHost[NetworkAnswer], hosts: Sequence[str]) -> NetSummary | None:
    """The summary for a report of these hosts; None where no host took part."""
    places = {host: place for place, host in enumerate(hosts)}
    try:
        matrix = assemble_matrix(answers)
    except Unreadable:
        return None
    if not set(matrix.hosts) <= set(places):  # a report of some of the test's hosts
        return None
    return NetSummary(
        next(iter(answers.values())).mode,
        tuple(places[host] for host in matrix.hosts),
        tuple((port.purpose, port.number) for port in matrix.ports),
        matrix.rows,
        str(matrix.coverage()),
        tuple(msgspec.structs.asdict(speed) for speed in matrix.speeds),
    )


def matrix_of(summary: NetSummary, hosts: Sequence[str]) -> Matrix:
    """The matrix again, with the report's names of its hosts."""
    return Matrix(
        tuple(hosts[place] for place in summary.hosts),
        tuple(TestedPort(purpose, number) for purpose, number in summary.ports),
        summary.rows,
        speeds=tuple(msgspec.convert(speed, PathSpeed) for speed in summary.speeds),
    )


def is_worth_a_map(summary: NetSummary) -> bool:
    """Whether an attempt failed, or is unknown."""
    return any(set(row) & set(WORTH_A_MAP) for rows in summary.rows for row in rows)


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

"""A network test as the report's summary, and back. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from doctor.engine.fact import PerHost, Unreadable
from doctor.engine.report_parts import NetSummary
from doctor.facts.network_test import NetworkAnswer
from doctor.net.assemble import assemble_matrix
from doctor.net.matrix import FAILING, Matrix, PathSpeed, TestedPort

WORTH_A_MAP = FAILING + "?!"


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

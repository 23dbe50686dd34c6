"""A network test in figures, as a report shows it: frozen values, with no judgement in them."""

from __future__ import annotations

import msgspec


class NetSummary(msgspec.Struct, frozen=True):
    """What the hosts tried, and what came of each attempt."""

    mode: str
    """quick or full."""
    hosts: tuple[int, ...]
    """By their places in the report's hosts, in the order of the rows."""
    ports: tuple[tuple[str, int], ...]
    """Purpose and number; 0 where each host has its own."""
    rows: tuple[tuple[str, ...], ...]
    """For each port, for each source, one letter for each target, as `doctor.net.matrix.LETTERS` has them."""
    coverage: str
    speeds: tuple[dict[str, float | None], ...] = ()
    """Fields of `doctor.net.matrix.PathSpeed`, with the numbers of the hosts in ``rows``; None: not measured."""

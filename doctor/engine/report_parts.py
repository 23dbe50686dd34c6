"""What a report holds beside its outcomes: the ages of findings, a network test in figures. No judgement. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

AgeKey = tuple[str, str]
"""A check and a host; the host is empty for a finding that names none."""


class FindingAge(msgspec.Struct, frozen=True, order=True):
    """What earlier runs say of one check's findings on one host.

    >>> FindingAge("present", "2026-11-21T12:40:00Z", runs=3)
    FindingAge(state='present', since='2026-11-21T12:40:00Z', runs=3, at_least=False, times=1)
    """

    state: Literal["new", "present"]
    """``new``: the last run that looked found nothing. ``present``: the last run had a finding, too."""
    since: str
    """UTC, ISO 8601. Of ``new``: that last run. Of ``present``: the first run of those in a row that had a finding."""
    runs: int = 1
    """Runs in a row that had a finding, with this one; runs that did not look are not counted."""
    at_least: bool = False
    """Of ``present``: no run is known that looked before them and found nothing."""
    times: int = 1
    """How often a finding came, this time included, as far as the history reaches."""


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

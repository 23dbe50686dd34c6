"""Since when a finding is there, as earlier runs of this user tell. Pure."""

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

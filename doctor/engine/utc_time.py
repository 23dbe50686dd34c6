"""Moments as runs, plans, events and logs name them."""

from __future__ import annotations

from datetime import datetime, timezone


def utc_text(moment: datetime | None = None, timespec: str = "seconds") -> str:
    """A moment in UTC, else this one, in ISO 8601.

    >>> utc_text(datetime(2026, 11, 20, 10, 15, 2, 600_000, timezone.utc))
    '2026-11-20T10:15:02Z'
    """
    moment = datetime.now(timezone.utc) if moment is None else moment
    return moment.isoformat(timespec=timespec).replace("+00:00", "Z")

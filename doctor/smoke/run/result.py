"""What a smoke run comes to."""

from __future__ import annotations

import msgspec

from doctor.engine.record import HostRecord
from doctor.smoke.model import SmokeRun


class SmokeResult(msgspec.Struct, frozen=True):
    """A run, and the output of each host."""

    run: SmokeRun
    records: dict[str, HostRecord]
    stopped: BaseException | None = None
    """What interrupted it, if it was."""
    variables: dict[str, dict[str, str]] = {}
    """By agent: the variables by which its environment sets how ranks communicate."""

"""How losses are read and judged, as the command line says it."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from doctor.watch.loss.log_watch import SILENT_SECONDS, LogWatch


class LossOptions(msgspec.Struct, frozen=True):
    """Options of `LogWatch`."""

    pattern: re.Pattern[str] | None = None
    """A user's own, instead of the known forms."""
    same_loss: bool = False
    """All ranks must print the same loss at each step."""
    silent_after: float = SILENT_SECONDS
    ignored: frozenset[str] = frozenset()
    """Checks whose verdicts are left out."""

    def log_watch(self, names: Sequence[str]) -> LogWatch:
        """What reads the losses. ``names``: of the logs, where there are any."""
        return LogWatch(
            names,
            self.pattern,
            same_loss=self.same_loss,
            silent_after=self.silent_after,
            ignored=self.ignored,
        )

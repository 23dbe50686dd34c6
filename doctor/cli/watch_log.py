"""`doctor watch --log`: its options."""

from __future__ import annotations

from typing import NamedTuple


class LogOptions(NamedTuple):
    """Which logs are followed, and how a loss is told in them."""

    @property
    def requested(self) -> bool:
        """Whether the command line asks for this mode."""
        return False

    def run(self) -> int:
        """Raises: CommandError. Returns: the exit code."""
        raise NotImplementedError

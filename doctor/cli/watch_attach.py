"""`doctor watch --attach`: its options."""

from __future__ import annotations

from typing import NamedTuple


class AttachOptions(NamedTuple):
    """Which ranks of a job that runs already."""

    @property
    def requested(self) -> bool:
        """Whether the command line asks for this mode."""
        return False

    def run(self) -> int:
        """Raises: CommandError. Returns: the exit code."""
        raise NotImplementedError

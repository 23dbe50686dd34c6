"""Launchers of ranks, one a module: add a module with a constant ``LAUNCHER``, and its test, for a new one."""

from __future__ import annotations

from doctor.environment.launcher import RankLauncher
from doctor.environment.registry import module_constants

__all__ = ["LAUNCHERS"]

LAUNCHERS: tuple[RankLauncher, ...] = tuple(
    sorted(module_constants(__name__, __path__, "LAUNCHER"), key=lambda launcher: launcher.priority)
)
"""Innermost first."""

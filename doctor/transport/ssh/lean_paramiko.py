"""paramiko without `invoke`, which only ``Match exec`` in its own reader of ssh configurations needs.

`invoke` brings a YAML reader and more: over a third of the CPU time of the import.
"""

from __future__ import annotations

import sys
from types import ModuleType

_UNUSED = "invoke"


def _import_without_unused() -> None:
    """Leaves paramiko in ``sys.modules``; or nothing, where this release of it cannot do without."""
    modules: dict[str, ModuleType | None] = sys.modules  # type: ignore[assignment]
    if "paramiko" in modules or _UNUSED in modules:
        return
    modules[_UNUSED] = None  # importing it raises ImportError, which paramiko expects where it is not installed
    try:
        import paramiko  # noqa: F401
    except ImportError:
        return
    finally:
        del modules[_UNUSED]


def allow_match_exec() -> None:
    """Gives paramiko's reader of ssh configurations what ``Match exec`` needs, where it is installed."""
    try:
        import invoke
    except ImportError:
        return
    paramiko.config.invoke = invoke  # type: ignore[attr-defined]


_import_without_unused()

import paramiko as paramiko  # noqa: E402
from paramiko.packet import Packetizer as Packetizer  # noqa: E402

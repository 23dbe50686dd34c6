"""What a check file may import; everything is loaded on first use, so that `doctor --help` stays quick."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from doctor.declaration import Skip as Skip
    from doctor.declaration import check as check
    from doctor.fact import PerHost as PerHost
    from doctor.model import ERROR as ERROR
    from doctor.model import WARNING as WARNING
    from doctor.model import Finding as Finding

__version__ = "0.1.0"
__all__ = ["ERROR", "WARNING", "Finding", "PerHost", "Skip", "check"]

_HOMES = {
    "ERROR": "doctor.model",
    "WARNING": "doctor.model",
    "Finding": "doctor.model",
    "PerHost": "doctor.fact",
    "Skip": "doctor.declaration",
    "check": "doctor.declaration",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module 'doctor' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)

"""What a check file may import; everything is loaded on first use, so that `doctor --help` stays quick."""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing would be a tenth of the time of a quick command
if TYPE_CHECKING:
    from doctor.engine.check import Skip as Skip
    from doctor.engine.check import check as check
    from doctor.engine.fact import PerHost as PerHost
    from doctor.engine.quantities import DAY as DAY
    from doctor.engine.quantities import GIB as GIB
    from doctor.engine.quantities import MIB as MIB
    from doctor.engine.quantities import ago_text as ago_text
    from doctor.engine.quantities import bytes_text as bytes_text
    from doctor.engine.quantities import seconds_text as seconds_text
    from doctor.engine.result import ERROR as ERROR
    from doctor.engine.result import WARNING as WARNING
    from doctor.engine.result import Finding as Finding
    from doctor.engine.texts import filled as filled
    from doctor.engine.texts import joined as joined

__version__ = "0.1.0"
_NAMES = {
    "doctor.engine.check": ("Skip", "check"),
    "doctor.engine.fact": ("PerHost",),
    "doctor.engine.quantities": ("DAY", "GIB", "MIB", "ago_text", "bytes_text", "seconds_text"),
    "doctor.engine.result": ("ERROR", "WARNING", "Finding"),
    "doctor.engine.texts": ("filled", "joined"),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}
__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "probe":  # a module, for training programs: it imports torch
        return import_module("doctor.watch.probe")
    if name not in _HOMES:
        raise AttributeError(f"module 'doctor' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value

"""paramiko without what it imports and hardly uses: half of the CPU time of its import.

`invoke`, which brings a YAML reader and more, is for ``Match exec`` in paramiko's own reader of ssh configurations;
`importlib.metadata`, which brings the readers of e-mail, for its own version number.
"""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType

_UNUSED = "invoke"
_METADATA = "importlib.metadata"
_ARENA_MAX = -8
"""Of mallopt(3). With several heaps for the threads of connections, each host takes a quarter more memory."""


def _import_without_unused() -> None:
    """Leaves paramiko in ``sys.modules``; or nothing, where this release of it cannot do without."""
    modules: dict[str, ModuleType | None] = sys.modules  # type: ignore[assignment]
    if "paramiko" in modules or _UNUSED in modules:
        return
    replaced: dict[str, ModuleType | None] = {_UNUSED: None}  # ImportError, which paramiko expects without `invoke`
    version = _installed_version()
    if version and _METADATA not in modules:
        replaced[_METADATA] = _metadata_of_paramiko(version)
    modules.update(replaced)
    try:
        import paramiko  # noqa: F401
    except (ImportError, AttributeError):
        return
    finally:
        for name in replaced:
            del modules[name]


def _metadata_of_paramiko(version: str) -> ModuleType:
    """What paramiko needs of `importlib.metadata`; for whoever asks more, the real one is imported after all."""

    def version_of(name: str) -> str:
        if name != "paramiko":
            raise ImportError(name)
        return version

    metadata = ModuleType(_METADATA)
    metadata.version = version_of  # type: ignore[attr-defined]
    return metadata


def _installed_version() -> str:
    """The version of paramiko by the name of its folder of metadata; empty where that is not the only one."""
    for folder in map(Path, sys.path):
        if (folder / "paramiko").is_dir():
            names = [path.name for path in folder.glob("paramiko-*.dist-info")]
            return names[0].removeprefix("paramiko-").removesuffix(".dist-info") if len(names) == 1 else ""
    return ""


def allow_match_exec() -> None:
    """Gives paramiko's reader of ssh configurations what ``Match exec`` needs, where it is installed."""
    try:
        import invoke
    except ImportError:
        return
    paramiko.config.invoke = invoke  # type: ignore[attr-defined]


_import_without_unused()
with suppress(AttributeError, OSError):  # another libc
    ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)

import paramiko as paramiko  # noqa: E402
from paramiko.packet import Packetizer as Packetizer  # noqa: E402

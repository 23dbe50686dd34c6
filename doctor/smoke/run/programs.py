"""The two programs that a smoke run sends to hosts, as text."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from doctor.remote import runtime
from doctor.smoke.programs.worker import MINDSPORE_PARTS, NATIVE_PARTS, PARTS, RUNTIME_PARTS, SHARED_PARTS
from doctor.transport.program import HostProgram

_FOLDER = Path(__file__).parents[1] / "programs"
_OWN_IMPORT = re.compile(r"^from doctor\.[\w.]+ import (?:\([^)]*\)|[^\n(]*)$", re.MULTILINE)


AGENT = HostProgram("doctor.smoke.programs.agent.agent", packed=True)
"""The program of each host."""


def agent_request(marker: str, listen: bool = False, port: int = 0, expected: Mapping[str, Any] | None = None) -> bytes:
    """What an agent reads first: how to mark its lines, and whether the ranks meet on its host, at a free port if 0.

    ``expected``: ranks on CPUs that a run will probably start, so that their interpreter imports torch before the order
    comes: ``mine``, ``python``, and what of the ``plan`` decides their environment.
    """
    return msgspec.json.encode({"marker": marker, "prepare": {"listen": listen, "port": port}, "expected": expected})


def own_python() -> str:
    """Our own interpreter, if the job's torch is in it; empty: what the agent finds."""
    return sys.executable if find_spec("torch") else ""


def worker() -> str:
    """The program of each rank. Tests append faults to it."""
    return _join(PARTS)


def native_stage() -> str:
    """The ``native`` stage, which runs behind `worker`."""
    return _join(NATIVE_PARTS)


def program(stages: Collection[str], library: str = "torch") -> str:
    """The program of each rank for a run with these stages and this library: no more than it needs."""
    return worker() + (native_stage() if "native" in stages else "") + _join(MINDSPORE_PARTS * (library == "mindspore"))


def part_path(name: str) -> Path:
    """The file of one part of the worker."""
    if name in RUNTIME_PARTS:
        return Path(runtime.__file__).with_name(f"{name}.py")
    return (_FOLDER if name in SHARED_PARTS else _FOLDER / "worker") / f"{name}.py"


def part(name: str) -> str:
    """One part of the worker, without its imports of other parts. Lines keep their numbers."""
    return without_own_imports(part_path(name).read_text("ascii"))


def without_own_imports(source: str) -> str:
    """A part's text without what it imports of doctor, which is there already. Lines keep their numbers."""
    return _OWN_IMPORT.sub(lambda match: "\n" * match[0].count("\n"), source)


def _join(names: Iterable[str]) -> str:
    """One text that runs the parts one after the other in its own namespace.

    Each part is compiled under its own file name, so that a stack shows the file and the line of this repository.
    """
    return "".join(f"exec(compile({part(name)!r}, 'worker/{name}.py', 'exec'))\n" for name in names)

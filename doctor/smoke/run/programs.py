"""The two programs that a smoke run sends to hosts, as text."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Mapping
from importlib.util import find_spec
from typing import Any

import msgspec

from doctor.remote.bootstrap import joined_modules
from doctor.transport.program import HostProgram

STAGE_PARTS = [f"stage_{name}" for name in ("collectives", "pairs", "training", "loader", "pace", "devices", "soak")]
_WORKER = [f"doctor.smoke.programs.worker.{name}" for name in (*STAGE_PARTS, "main")]
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
    return joined_text("worker", *_WORKER)


def program(stages: Collection[str], library: str = "torch") -> str:
    """The program of each rank for a run with these stages and this library: no more than it needs."""
    more = ["stage_native"] * ("native" in stages) + ["mindspore_rank"] * (library == "mindspore")
    text = joined_text("worker", *_WORKER, *(f"doctor.smoke.programs.worker.{name}" for name in more))
    return worker() + text.removeprefix(joined_text("worker", *_WORKER))


def joined_text(folder: str, *modules: str) -> str:
    """One text that runs modules, each behind those that it imports, one after the other in its own namespace.

    Each is compiled under its own file name, so that a stack shows the file, in ``folder``, and the line of this
    repository.
    """
    texts = {f"{folder}/{name.rpartition('.')[2]}.py": text for name, text in joined_modules(*modules).items()}
    return "".join(f"exec(compile({without_own_imports(text)!r}, {file!r}, 'exec'))\n" for file, text in texts.items())


def without_own_imports(source: str) -> str:
    """A part's text without what it imports of doctor, which is there already. Lines keep their numbers."""
    return _OWN_IMPORT.sub(lambda match: "\n" * match[0].count("\n"), source)

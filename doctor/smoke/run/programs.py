"""The two programs that a smoke run sends to hosts, as text."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

_PROGRAMS = Path(__file__).parents[1] / "programs"


def agent() -> bytes:
    """The program of each host."""
    return (_PROGRAMS / "agent.py").read_bytes()


def worker() -> str:
    """The program of each rank. Tests put faults behind it."""
    return (_PROGRAMS / "worker.py").read_text("utf-8")


def program(stages: Collection[str]) -> str:
    """The program of each rank for a run with these stages: torch's own wrappers only where they are wanted."""
    return worker() + ("\n\n" + (_PROGRAMS / "native_stage.py").read_text("utf-8") if "native" in stages else "")

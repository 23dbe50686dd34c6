"""Shared memory in a line."""

from __future__ import annotations

from doctor.facts.memory import SharedMemory


def shm(size: int, free: int | None = None) -> SharedMemory:
    return SharedMemory(size=size, free=size if free is None else free)

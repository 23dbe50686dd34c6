"""Limits of a process in a line."""

from __future__ import annotations

from doctor.facts.limits import Limit, ResourceLimits

FREE = Limit(None, None)


def limits(nofile: Limit = FREE, memlock: Limit = FREE, nproc: Limit = FREE) -> ResourceLimits:
    return ResourceLimits(nofile=nofile, memlock=memlock, nproc=nproc)

"""A job's control group, to be changed in one place."""

from __future__ import annotations

from typing import Any

from doctor.facts.control_group import ControlGroup, MemoryBound

GROUP = "/sys/fs/cgroup/system.slice/job.service"


def control_group(**more: Any) -> ControlGroup:
    """One without limits, on a host with 128 CPUs."""
    free: dict[str, Any] = {
        "memory": (),
        "processes": None,
        "processes_setting": "",
        "quota": None,
        "quota_setting": "",
        "allowed_cpus": 128,
        "online_cpus": 128,
    }
    return ControlGroup(**{**free, **more})


def memory_bound(limit: int, used: int = 0, file: str = "memory.max") -> MemoryBound:
    return MemoryBound(f"{GROUP}/{file}", limit, used)

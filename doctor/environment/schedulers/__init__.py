"""Schedulers and platforms, one a module: add a module with a constant ``SCHEDULER``, and its test, for a new one."""

from __future__ import annotations

from collections.abc import Mapping

from doctor.environment.mounted_rank_table import MountedRankTable
from doctor.environment.registry import module_constants
from doctor.environment.scheduler import Allocation, JobScheduler
from doctor.environment.variables import EnvironmentVariables

__all__ = ["SCHEDULERS", "batch_allocation", "find_allocation", "scheduler_host_name"]

SCHEDULERS: tuple[JobScheduler, ...] = tuple(
    sorted(module_constants(__name__, __path__, "SCHEDULER"), key=lambda scheduler: scheduler.priority)
)


def find_allocation(variables: EnvironmentVariables, table: MountedRankTable | None) -> Allocation | None:
    """The job that this process is part of, by the first scheduler that recognises it."""
    for scheduler in SCHEDULERS:
        allocation = scheduler.read(variables, table)
        if allocation:
            return allocation
    return None


def batch_allocation(environ: Mapping[str, str]) -> Allocation | None:
    """The job around this process whose hosts a command reaches from it; None where there is none."""
    variables = EnvironmentVariables(environ)
    allocations = (scheduler.read(variables, None) for scheduler in SCHEDULERS if scheduler.reaches_hosts)
    return next((allocation for allocation in allocations if allocation), None)


def scheduler_host_name(environ: Mapping[str, str]) -> str:
    """The scheduler's name of this host; empty if no variable has it."""
    return next((environ[name] for name in _host_name_variables() if environ.get(name)), "")


def _host_name_variables() -> list[str]:
    return [scheduler.host_name_variable for scheduler in SCHEDULERS if scheduler.host_name_variable]

"""The table of schedulers and platforms, and the job of a process by it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from doctor.engine.toml_compat import read_table
from doctor.environment.mounted_rank_table import MountedRankTable
from doctor.environment.scheduler import Allocation, JobScheduler
from doctor.environment.scheduler_hooks import HOOKS
from doctor.environment.variables import EnvironmentVariables


class _Table(msgspec.Struct, forbid_unknown_fields=True):
    scheduler: tuple[JobScheduler, ...]


@cache
def schedulers() -> tuple[JobScheduler, ...]:
    """All schedulers; where several are recognised, the first is taken."""
    return read_table(Path(__file__).with_suffix(".toml"), _Table).scheduler


def find_allocation(
    variables: EnvironmentVariables, table: MountedRankTable | None, reaches_hosts: bool = False
) -> Allocation | None:
    """The job that this process is part of, by the first scheduler that recognises it.

    ``reaches_hosts``: only by those from whose batch scripts a command reaches all hosts.
    """
    for row in schedulers():
        if reaches_hosts and not row.reaches_hosts:
            continue
        hook = HOOKS.get(row.name)
        allocation = hook(row, variables, table) if hook else row.read(variables) if row.is_present(variables) else None
        if allocation:
            return allocation
    return None


def batch_allocation(environ: Mapping[str, str]) -> Allocation | None:
    """The job around this process whose hosts a command reaches from it; None where there is none."""
    return find_allocation(EnvironmentVariables(environ), None, reaches_hosts=True)


def scheduler_host_name(environ: Mapping[str, str]) -> str:
    """The scheduler's name of this host; empty if no variable has it."""
    return next((environ[row.host_name] for row in schedulers() if environ.get(row.host_name)), "")

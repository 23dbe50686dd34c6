"""A job context as text: a description for people, and a tag of one word. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from doctor.engine.sanitize import printable
from doctor.engine.texts import filled, joined
from doctor.environment.inventory import USER_VARIABLES
from doctor.environment.launcher import LaunchedRank
from doctor.environment.launchers import by_hand
from doctor.environment.scheduler import Allocation
from doctor.environment.variables import EnvironmentVariables, or_unknown

Started = Literal["once", "hosts", "ranks", "prolog"]
"""As a single process; as one on every host; as one for every rank; by a scheduler's daemon before or after a job."""

_LONGEST_TAG = 80


class Origin(NamedTuple):
    """How a process was started: the input of the description."""

    environ: Mapping[str, str]
    started: Started
    allocation: Allocation | None
    launch: LaunchedRank | None
    has_rank_table: bool
    hosts_source: str


def kind(origin: Origin) -> str:
    """The scheduler; without one the launcher; without one the source of the hosts. See `JobContext.kind`."""
    if origin.allocation:
        return origin.allocation.scheduler.name
    if origin.has_rank_table and (origin.launch is None or origin.launch.launcher.by_hand):
        return "rank-table"
    if origin.launch:
        return origin.launch.launcher.kind
    names = {name: name.removeprefix("DOCTOR_").lower() for name in USER_VARIABLES}
    of_user = next((names[name] for name in names if name in origin.environ), "")
    return of_user or ("hostfile" if origin.hosts_source else "alone")


def describe(origin: Origin) -> str:
    """``Slurm job 1234, step 0, task 3 of 8 on n2``."""
    allocation, variables = origin.allocation, EnvironmentVariables(origin.environ)
    parts = [allocation.title] if allocation else []
    if origin.started == "prolog":
        parts.append(allocation.daemon_script if allocation else "prolog")
    elif origin.started == "ranks":
        parts += _as_rank(origin, variables)
    elif origin.started == "hosts":
        parts.append(_as_host(allocation))
    elif allocation:
        parts += allocation.scheduler.describe_single_process(variables)
    elif origin.hosts_source:
        parts.append(origin.hosts_source)
    text = joined(", ", parts) or "this host alone"
    host_name = allocation.host_name if allocation else ""
    return filled("{0} on {1}", text, printable(host_name, 60)) if host_name else text


def _as_host(allocation: Allocation | None) -> str:
    if allocation and allocation.is_scheduler_process:
        return "scheduler"
    node_rank, node_count = (allocation.node_rank, allocation.node_count) if allocation else (None, None)
    return f"host {or_unknown(node_rank)} of {or_unknown(node_count)}"


def _as_rank(origin: Origin, variables: EnvironmentVariables) -> list[str]:
    launch = origin.launch
    launcher = launch.launcher if launch else by_hand()
    if launch and launch.is_scheduler_process:
        return [filled("{0}'s scheduler", launcher.title)]
    rank, world_size = (launch.rank, launch.world_size) if launch else (None, None)
    parts = launcher.describe(filled("{0} of {1}", or_unknown(rank), or_unknown(world_size)), variables)
    alone = launcher.scheduler and (not origin.allocation or launcher.scheduler != origin.allocation.scheduler.name)
    return [launcher.title, *parts] if alone else parts


def tag(origin: Origin) -> str:
    """``slurm:1234/torchrun``: the scheduler, its job, and the launcher unless that is the scheduler's own.

    ``no-job`` outside of any.
    """
    name = kind(origin)
    name = "no-job" if name == "alone" else name
    job_id = origin.allocation.job_id if origin.allocation else ""
    text = f"{name}:{job_id}" if job_id else name
    launcher = origin.launch.launcher if origin.launch and origin.started == "ranks" else None
    if launcher and name not in (launcher.kind, launcher.scheduler, "rank-table"):
        text += f"/{launcher.kind}"
    return re.sub(r"[^A-Za-z0-9._:@+/-]", "_", text)[:_LONGEST_TAG]
